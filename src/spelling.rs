//! Finds the likely word for a misspelt one, for hints to operators.

/// Words that are looked at: a hint is not worth more.
const MOST_KNOWN: usize = 1_000;

/// The word of `known` that is nearest to `word`, if any is near.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let most = ((length + 1) / 3).max(1);
    known
        .take(MOST_KNOWN)
        // No distance is shorter than the difference in length, and no word of ours is longer than
        // a name.
        .filter(|candidate| length <= 64 && candidate.chars().count().abs_diff(length) <= most)
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two words, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().flat_map(char::to_lowercase).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_word_with_a_slip_and_nothing_for_another_word() {
        let words = || ["listeners", "limits", "routes"].into_iter();
        assert_eq!(nearest("listners", words()), Some("listeners"));
        assert_eq!(nearest("Limit", words()), Some("limits"));
        assert_eq!(nearest("plugins", words()), None);
    }
}
