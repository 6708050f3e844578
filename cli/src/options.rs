//! Values of command-line options.

use std::ffi::OsString;

use std::time::Duration;

use abi::config::Choice;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::guest::{boot_clock, linux};

/// Options of all commands that boot guests.
#[derive(Args, Clone, Debug, Default)]
pub struct Guests {
    /// Stock kernel to compare with: a version such as 6.1 or 6.12, or a kernel's file
    ///
    /// A version is looked up among the kernels that were fetched and in the distribution's package lists.
    /// 6.12 means its newest package. Without this option it is the kernel that the distribution recommends.
    #[arg(long, value_name = "VERSION|FILE")]
    linux: Option<String>,
    /// Seconds that a guest may take to boot, without those in which QEMU waits for a processor
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    boot_limit: Option<u64>,
}

impl Guests {
    /// Sets the options for this process.
    pub fn apply(&self) {
        if let Some(word) = &self.linux {
            linux::ask_for(word);
        }
        if let Some(seconds) = self.boot_limit {
            boot_clock::set_limit(Duration::from_secs(seconds));
        }
    }

    /// Returns whether a stock kernel was named.
    pub fn name_linux(&self) -> bool {
        self.linux.is_some()
    }
}

/// Parses bytes of memory from `512M`, `2G`, or a plain number of MiB, as QEMU does.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = amount(text)?;
    if bytes >= 16 << 20 { Ok(bytes) } else { Err(help("give at least 16M and at most 1024G")) }
}

/// Parses bytes in the same way, without a least number.
pub fn amount(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| help("give a size such as 512M or 2G"))?;
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KB" | "KIB" => 10,
        "" | "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err(help("units are K, M and G")),
    };
    number.checked_mul(1 << shift).filter(|bytes| *bytes <= 1 << 40).ok_or_else(|| help("give at most 1024G"))
}

/// Returns a parser of one of the kernel's choices, with each word and its explanation in the help.
pub fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = T::ALL.iter().map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(|word| T::named(&word).ok_or("no such word"))
}

fn help(text: &str) -> String {
    text.to_owned()
}

/// Parses a number of CPUs.
pub fn cpus(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=255).contains(number));
    number.ok_or_else(|| help("give a number of CPUs from 1 to 255"))
}

/// Parses a number of runs.
pub fn repeats(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| help("give a number of runs, 1 or more"))
}

/// Parses a number of CPUs that the meter supports.
pub fn metered_cpus(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=128).contains(number));
    number.ok_or_else(|| help("give numbers of CPUs from 1 to 128, as in 1,2,4"))
}

/// Parses `K=V`, or `K` for the value that this process has.
pub fn setting(text: &str) -> Result<OsString, String> {
    match text.split_once('=') {
        Some(("", _)) | None if text.is_empty() || text.starts_with('=') => Err(help("give NAME=VALUE")),
        Some(_) => Ok(text.into()),
        None => inherited(text).ok_or_else(|| format!("{text} is not set here: give {text}=VALUE")),
    }
}

fn inherited(name: &str) -> Option<OsString> {
    let mut setting = OsString::from(name);
    setting.push("=");
    setting.push(std::env::var_os(name)?);
    Some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("64"), Ok(64 << 20));
        assert_eq!(size("65536k"), Ok(64 << 20));
        assert_eq!((amount("1K"), amount("0")), (Ok(1024), Ok(0)));
        for bad in ["", "M", "1T", "1M", "99999999999G", "-1", "5000G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpus_have_a_range() {
        assert_eq!(cpus("255"), Ok(255));
        for bad in ["0", "256", "x", "-1", ""] {
            assert!(cpus(bad).unwrap_err().contains("1 to 255"), "{bad}");
        }
    }

    #[test]
    fn there_is_at_least_one_run() {
        assert_eq!(repeats("3"), Ok(3));
        for bad in ["0", "-1", "x", ""] {
            assert!(repeats(bad).unwrap_err().contains("1 or more"), "{bad}");
        }
    }

    #[test]
    fn metered_cpus_end_at_128() {
        assert_eq!(metered_cpus("128"), Ok(128));
        assert!(metered_cpus("129").unwrap_err().contains("1 to 128"));
    }

    #[test]
    fn settings_come_with_a_value_or_from_here() {
        assert_eq!(setting("A=b=c"), Ok("A=b=c".into()));
        assert_eq!(setting("A="), Ok("A=".into()));
        assert!(setting("PATH").unwrap().to_string_lossy().starts_with("PATH="));
        assert!(setting("NO_SUCH_VARIABLE_HERE").is_err());
        assert!(setting("=x").is_err() && setting("").is_err());
    }
}
