//! The outcome of the last reading of the configuration file.

use arc_swap::{ArcSwap, ArcSwapOption};

use tollgate_limiter::clock;

/// Mistakes that are kept: a page with more is not read.
const MOST_MISTAKES: usize = 50;

/// The configuration file, and its last reading.
pub struct ConfigStatus {
    pub file: String,
    last: ArcSwap<FileReading>,
    /// The policies. `None`: the gateway has none.
    policies: ArcSwapOption<PolicyReading>,
}

/// The policies at work, and the newest revision if that is another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyReading {
    pub running: u64,
    /// A newer revision that does not fit the file, and why.
    pub refused: Option<(u64, Vec<String>)>,
}

/// A reading of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReading {
    /// In seconds since 1970.
    pub at: u64,
    /// When a file was last applied, in seconds since 1970.
    pub applied_at: u64,
    /// Why it was not applied. Empty: it was.
    pub mistakes: Vec<String>,
}

impl ConfigStatus {
    /// The status of a file that was just read for the first time.
    pub fn new(file: String) -> Self {
        let at = now();
        Self {
            file,
            last: ArcSwap::from_pointee(FileReading {
                at,
                applied_at: at,
                mistakes: Vec::new(),
            }),
            policies: ArcSwapOption::empty(),
        }
    }

    pub fn last(&self) -> FileReading {
        (**self.last.load()).clone()
    }

    /// The file was applied.
    pub fn applied(&self) {
        let at = now();
        self.last.store(
            FileReading {
                at,
                applied_at: at,
                mistakes: Vec::new(),
            }
            .into(),
        );
    }

    /// The policies of a gateway that has some.
    pub fn policies(&self) -> Option<PolicyReading> {
        self.policies.load().as_deref().cloned()
    }

    /// Records the revision at work, and a newer revision that was refused.
    pub fn set_policies(&self, running: u64, refused: Option<(u64, Vec<String>)>) {
        let refused = refused.map(|(revision, mistakes)| (revision, shortened(mistakes)));
        self.policies
            .store(Some(PolicyReading { running, refused }.into()));
    }

    /// The file was not applied, and nothing has changed.
    pub fn rejected(&self, mistakes: Vec<String>) {
        let mistakes = shortened(mistakes);
        let applied_at = self.last.load().applied_at;
        self.last.store(
            FileReading {
                at: now(),
                applied_at,
                mistakes,
            }
            .into(),
        );
    }
}

fn shortened(mut mistakes: Vec<String>) -> Vec<String> {
    let more = mistakes.len().saturating_sub(MOST_MISTAKES);
    mistakes.truncate(MOST_MISTAKES);
    if more > 0 {
        mistakes.push(format!("… and {more} more: the log has them"));
    }
    mistakes
}

fn now() -> u64 {
    clock::unix_micros() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_mistakes_leaves_the_last_one_in_force() {
        let status = ConfigStatus::new("routes.yaml".to_owned());
        let begun = status.last();
        assert!(begun.mistakes.is_empty() && begun.at > 0);
        status.rejected(vec!["routes.yaml:3:1: no".to_owned(); MOST_MISTAKES + 7]);
        let last = status.last();
        assert_eq!(
            (last.mistakes.len(), last.applied_at),
            (MOST_MISTAKES + 1, begun.applied_at)
        );
        assert_eq!(
            last.mistakes[MOST_MISTAKES],
            "… and 7 more: the log has them"
        );
        status.applied();
        assert!(status.last().mistakes.is_empty());
    }
}
