//! Command line options: `--name value`, `--name=value`, `--flag`. A word behind `--` is never an option.
//!
//! Errors name the option and the accepted values. A program that gets one ends with status 2.

use std::ffi::OsString;
use std::ops::RangeInclusive;

/// The words of a command line that no option has claimed yet.
pub struct Args {
    words: Vec<String>,
    plain: Vec<String>,
}

/// The value, or a message for the user.
pub type Parsed<T> = Result<T, String>;

impl Args {
    /// Takes the words after the program's name.
    pub fn new(words: impl IntoIterator<Item = OsString>) -> Parsed<Args> {
        let mut words = words.into_iter().map(text).collect::<Parsed<Vec<_>>>()?;
        let end = words.iter().position(|word| word == "--");
        let plain = end.map_or(Vec::new(), |at| words.split_off(at).split_off(1));
        Ok(Args { words, plain })
    }

    /// Returns whether `--name` is there.
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.words.iter().position(|word| word == name);
        found.map(|at| self.words.remove(at)).is_some()
    }

    /// Returns the value of `--name`, if it was given.
    pub fn value(&mut self, name: &str) -> Parsed<Option<String>> {
        let joined = format!("{name}=");
        let Some(at) = self.words.iter().position(|word| word == name || word.starts_with(&joined)) else {
            return Ok(None);
        };
        let word = self.words.remove(at);
        if let Some(value) = word.strip_prefix(&joined) {
            return Ok(Some(value.to_string()));
        }
        if self.words.get(at).is_none_or(|next| next.starts_with("--")) {
            return Err(format!("{name} needs a value: {name} VALUE"));
        }
        Ok(Some(self.words.remove(at)))
    }

    /// Returns a whole number within `range`.
    pub fn number(&mut self, name: &str, default: u64, range: RangeInclusive<u64>) -> Parsed<u64> {
        let Some(value) = self.value(name)? else { return Ok(default) };
        let number = value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| {
            format!("{name} {value}: give a whole number from {} to {}", range.start(), range.end())
        })
    }

    /// Returns a number of bytes within `range`. It may have K, M or G behind it.
    pub fn size(&mut self, name: &str, default: u64, range: RangeInclusive<u64>) -> Parsed<u64> {
        let Some(value) = self.value(name)? else { return Ok(default) };
        parse_size(&value).filter(|bytes| range.contains(bytes)).ok_or_else(|| {
            let (low, high) = (range.start(), range.end());
            format!("{name} {value}: give a size such as 64K or 8M, from {low} to {high} bytes")
        })
    }

    /// Returns the first word that is no option, when all options with values have been taken.
    pub fn word(&mut self) -> Option<String> {
        let found = self.words.iter().position(|word| !word.starts_with('-'));
        let plain = |args: &mut Args| (!args.plain.is_empty()).then(|| args.plain.remove(0));
        found.map(|at| self.words.remove(at)).or_else(|| plain(self))
    }

    /// Returns the words that are no option. One that looks like an option is unknown.
    pub fn rest(mut self) -> Parsed<Vec<String>> {
        if let Some(unknown) = self.words.iter().find(|word| word.starts_with('-') && word.len() > 1) {
            return Err(format!("unknown option {unknown}; --help lists the options"));
        }
        self.words.append(&mut self.plain);
        Ok(self.words)
    }

    /// Checks that no words are left, for programs that take options only.
    pub fn end(self) -> Parsed<()> {
        match self.rest()?.first() {
            Some(word) => Err(format!("unexpected argument {word}; --help lists the options")),
            None => Ok(()),
        }
    }
}

/// Runs `parse` over this process's command line. `--help` prints `usage`, and an error ends the program with
/// status 2.
pub fn options<T>(usage: &str, parse: impl FnOnce(Args) -> Parsed<T>) -> T {
    let parsed = Args::new(std::env::args_os().skip(1)).and_then(|mut args| {
        if args.flag("--help") || args.flag("-h") {
            crate::say(usage);
            std::process::exit(0);
        }
        parse(args)
    });
    parsed.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(2)
    })
}

fn text(word: OsString) -> Parsed<String> {
    word.into_string().map_err(|word| format!("{word:?} is not UTF-8; rename it"))
}

fn parse_size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'k', 'm', 'g']);
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(OsString::from)).unwrap()
    }

    #[test]
    fn values_are_taken_in_both_spellings_and_leave_the_rest() {
        let mut args = args("--threads 4 a --pages=7 b");
        assert_eq!(args.number("--threads", 1, 1..=8), Ok(4));
        assert_eq!(args.number("--pages", 1, 1..=8), Ok(7));
        assert_eq!(args.number("--iterations", 9, 1..=8), Ok(9));
        assert_eq!(args.rest(), Ok(vec!["a".to_string(), "b".to_string()]));
    }

    #[test]
    fn errors_name_the_option_and_what_it_takes() {
        let error = args("--threads 9").number("--threads", 1, 1..=8).unwrap_err();
        assert_eq!(error, "--threads 9: give a whole number from 1 to 8");
        let error = args("--threads").number("--threads", 1, 1..=8).unwrap_err();
        assert_eq!(error, "--threads needs a value: --threads VALUE");
        let error = args("--threads --json").number("--threads", 1, 1..=8).unwrap_err();
        assert_eq!(error, "--threads needs a value: --threads VALUE");
        assert!(args("--thread 9").end().unwrap_err().contains("unknown option --thread"));
        assert!(args("9").end().unwrap_err().contains("unexpected argument 9"));
    }

    #[test]
    fn words_after_two_dashes_are_never_options() {
        let mut args = args("--json -- --json file");
        assert!(args.flag("--json"));
        assert!(!args.flag("--json"));
        assert_eq!(args.rest(), Ok(vec!["--json".to_string(), "file".to_string()]));
    }

    #[test]
    fn words_are_taken_one_by_one() {
        let mut args = args("--json shared --threads 2 -- --odd");
        assert_eq!(args.number("--threads", 1, 1..=8), Ok(2));
        assert_eq!(args.word().as_deref(), Some("shared"));
        assert_eq!(args.word().as_deref(), Some("--odd"));
        assert_eq!(args.word(), None);
        assert!(args.flag("--json"));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("64K"), Some(64 << 10));
        assert_eq!(parse_size("8m"), Some(8 << 20));
        assert_eq!(parse_size("512"), Some(512));
        for wrong in ["", "K", "8MM", "8T", "-1", "99999999999G"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
