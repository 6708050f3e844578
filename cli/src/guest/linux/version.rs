//! Versions of kernels: comparing them, and matching those that the user means by `6.1`.

use std::cmp::Ordering;

/// The flavours of kernels, those for virtual machines first, then those for all machines: Debian's and
/// Ubuntu's.
pub const FLAVOURS: [&str; 4] = ["-cloud-amd64", "-virtual", "-generic", "-amd64"];

/// Returns a version without its flavour: `6.1.0-44` of `6.1.0-44-cloud-amd64`.
pub fn short(version: &str) -> &str {
    FLAVOURS.iter().find_map(|flavour| version.strip_suffix(flavour)).unwrap_or(version)
}

/// Returns whether a version without a flavour has none of another kind either, such as `-rt`.
pub fn is_plain(version: &str) -> bool {
    version.split('-').all(|part| part.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns whether the user means this version by `asked`: it is the same, or continues where `asked` ends.
pub fn matches(version: &str, asked: &str) -> bool {
    let rest = version.strip_prefix(asked).filter(|_| !asked.is_empty());
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Compares two versions, number by number.
pub fn compare(one: &str, other: &str) -> Ordering {
    parts(one).cmp(&parts(other))
}

/// Returns the numbers, and the text between them.
fn parts(version: &str) -> Vec<(u64, String)> {
    let mut rest = version;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number = rest[..digits].parse().unwrap_or(0);
        let words = rest[digits..].find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len() - digits);
        parts.push((number, rest[digits..digits + words].to_owned()));
        rest = &rest[digits + words..];
    }
    parts
}

/// Returns the first two numbers of the version in a package's name: `6.1` of `linux-image-6.1.0-44-amd64`.
pub fn series(package: &str) -> Option<String> {
    let version = package.strip_prefix("linux-image-")?;
    let mut numbers = version.splitn(3, |c: char| !c.is_ascii_digit());
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_number() {
        assert_eq!(compare("6.9.0", "6.12.0"), Ordering::Less);
        assert_eq!(compare("6.1.0-44-cloud-amd64", "6.1.0-9-cloud-amd64"), Ordering::Greater);
        assert_eq!(compare("6.12-cloud-amd64", "6.12.9+deb12-cloud-amd64"), Ordering::Less);
        assert_eq!(compare("7.2", "7.2"), Ordering::Equal);
    }

    #[test]
    fn a_person_means_all_that_begin_so() {
        assert!(matches("6.1.0-44-cloud-amd64", "6.1") && matches("6.1.0-44-cloud-amd64", "6.1.0-44"));
        assert!(matches("6.12.9+deb12-amd64", "6.12.9") && matches("6.12", "6.12"));
        assert!(!matches("6.12.9-amd64", "6.1") && !matches("6.1.0-44-amd64", "6.1.0-4"));
        assert!(!matches("6.1.0", ""));
    }

    #[test]
    fn flavours_are_left_out_where_people_read() {
        assert_eq!(short("6.1.0-44-cloud-amd64"), "6.1.0-44");
        assert_eq!(short("6.8.0-60-generic"), "6.8.0-60");
        assert_eq!(short("6.12.9+deb13-amd64"), "6.12.9+deb13");
        assert_eq!(short("7.2.0-mine"), "7.2.0-mine");
    }

    #[test]
    fn other_flavours_are_not_plain() {
        assert!(is_plain("6.1.0-44") && is_plain("6.12.9+deb12"));
        assert!(!is_plain("6.1.0-44-cloud") && !is_plain("6.12.9+deb12-rt"));
    }

    #[test]
    fn packages_have_a_series() {
        assert_eq!(series("linux-image-6.12.117+deb12-cloud-amd64").as_deref(), Some("6.12"));
        assert_eq!(series("linux-doc-6.12"), None);
    }
}
