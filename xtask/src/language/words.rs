//! The words that we replaced, each with a better one.

/// Words and phrases of sentences.
pub const WORDS: [(&str, &str); 14] = [
    ("whoever", "the core that, the caller that, ..."),
    ("whomever", "the core that, the caller that, ..."),
    ("so many", "the number of"),
    ("nobody", "no core, no caller, no process, ..."),
    ("anybody", "any core, any caller, ..."),
    ("somebody", "a core, a caller, ..."),
    ("everybody", "all cores, all processes, ..."),
    ("he", "the core, the process, ..."),
    ("she", "the core, the process, ..."),
    ("his", "its"),
    ("lets go of", "releases"),
    ("let go of", "release"),
    ("meets nobody", "touches no shared cache line"),
    ("in earnest", "(leave it out)"),
];

/// First words of a sentence that is no question.
pub const FIRST: [(&str, &str); 3] = [
    ("Who", "name the subject: the core that, the caller that, ..."),
    ("Whoever", "name the subject: the core that, the caller that, ..."),
    ("What", "name the subject: the value that, the state of, ..."),
];

/// Names in code that have a standard one today.
const NAMES: [(&str, &str); 17] = [
    ("Rig", "Backend"),
    ("Seats", "PrivateSharers"),
    ("welcomes", "may_link"),
    ("take_back", "invalidate, subtract"),
    ("Quiet", "Invalidated"),
    ("give_up", "release, drop_references"),
    ("Heir", "ForkBacking"),
    ("Heritage", "ForkedPage"),
    ("Mover", "RemapBacking"),
    ("PATIENCE", "a name that says what is limited"),
    ("found_memory", "try_reclaim"),
    ("patiently", "retry_on_enomem"),
    ("outlast", "wait_for_oom"),
    ("rivals", "baselines"),
    ("scarcity", "fault_injection"),
    ("strikes", "should_fail"),
    ("bond", "parent_link"),
];

/// Returns the lines of a file that use an old name.
pub fn old_names(text: &str) -> Vec<(usize, String)> {
    let numbered = text.lines().enumerate();
    let faults = numbered.flat_map(|(at, line)| {
        let found = NAMES.iter().filter(move |(old, _)| position(line, old).is_some());
        found.map(move |(old, new)| (at + 1, format!("the name \"{old}\" is now {new}")))
    });
    faults.collect()
}

/// Returns where `phrase` occurs in `text` as whole words.
pub fn position(text: &str, phrase: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(phrase).map(|(at, _)| at).find(|&at| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_whole_words() {
        assert_eq!(position("the end, he said", "he"), Some(9));
        assert_eq!(position("the shelf", "he"), None);
        assert_eq!(position("take_back_all, take_back", "take_back"), Some(15));
    }

    #[test]
    fn an_old_name_is_found_with_its_line() {
        let faults = old_names("fn invalidate() {}\nfn take_back() {}\n");
        assert_eq!(faults, [(2, "the name \"take_back\" is now invalidate, subtract".to_owned())]);
    }
}
