//! Finds the likely word for a misspelt one, for hints to operators.

/// Most words that are compared: a hint is not worth more.
const MOST_KNOWN: usize = 1_000;

/// The word of `known` that is nearest to `word`, if any is near.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let most = ((length + 1) / 3).max(1);
    // No word of the configuration is longer than a name.
    if length > 64 {
        return None;
    }
    let mut best = None;
    let mut bound = most + 1;
    for candidate in known.take(MOST_KNOWN) {
        // No distance is shorter than the difference in length.
        if candidate.chars().count().abs_diff(length) >= bound {
            continue;
        }
        let distance = distance(word, candidate);
        if distance < bound {
            bound = distance;
            best = Some(candidate);
        }
    }
    best
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
        for (word, expected) in [
            ("listners", Some("listeners")),
            ("Limit", Some("limits")),
            ("plugins", None),
        ] {
            let known = ["listeners", "limits", "routes"].into_iter();
            assert_eq!(nearest(word, known), expected);
        }
    }
}
