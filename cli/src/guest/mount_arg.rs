//! `--rw DIR[:GUEST]`: a directory of the host that the guest may change, and its path there.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::image::refuse_guests_own;

/// The most directories: the guest has four devices for files, and one is for the host's root.
pub const MOST: usize = 3;

/// A directory of the host that the guest may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountArg {
    /// The path on the host, without links.
    pub host: PathBuf,
    /// The path in the guest.
    pub guest: PathBuf,
}

impl MountArg {
    /// Parses `DIR[:GUEST]`. Without GUEST the path is the same in the guest.
    ///
    /// # Errors
    /// If DIR is no directory, or GUEST no absolute path of a directory that the guest can have.
    pub fn parse(text: &str) -> Result<Self> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if !Path::new(text).exists() => (host, Some(guest)),
            _ => (text, None),
        };
        let host = Path::new(host).canonicalize().with_context(|| format!("--rw {host}"))?;
        ensure!(host.is_dir(), "--rw {}: not a directory: name the one that it is in", host.display());
        ensure!(host.to_str().is_some(), "--rw {}: its name is no UTF-8 text", host.display());
        let guest = guest.map_or_else(|| host.clone(), PathBuf::from);
        let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        ensure!(
            guest.is_absolute() && guest.components().all(is_plain),
            "--rw {text}: the path in the guest begins with a slash and has no `..`"
        );
        ensure!(
            guest.file_name().is_some(),
            "--rw {text}: the guest's root directory cannot be one that changes"
        );
        refuse_guests_own(&guest)?;
        Ok(Self { host, guest })
    }

    /// Parses all of them.
    ///
    /// # Errors
    /// As above, and if there are too many.
    pub fn parse_all(texts: &[String]) -> Result<Vec<Self>> {
        ensure!(texts.len() <= MOST, "--rw: {MOST} directories at most: name one that has several in it");
        let all: Vec<Self> = texts.iter().map(|text| Self::parse(text)).collect::<Result<_>>()?;
        for (number, one) in all.iter().enumerate() {
            let inside = all
                .iter()
                .take(number)
                .find(|other| other.host.starts_with(&one.host) || one.host.starts_with(&other.host));
            if let Some(other) = inside {
                bail!(
                    "--rw {}: it has files in common with --rw {}: give the outer one",
                    one.host.display(),
                    other.host.display()
                );
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_path_on_both_sides() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let text = |tail: &str| format!("{}{tail}", folder.path().display());
        let parsed = MountArg::parse(&text("")).unwrap();
        assert_eq!(parsed, MountArg { host: real.clone(), guest: real.clone() });
        let parsed = MountArg::parse(&text(":/data/out")).unwrap();
        assert_eq!(parsed, MountArg { host: real.clone(), guest: "/data/out".into() });
        std::fs::create_dir(folder.path().join("a:b")).unwrap();
        assert_eq!(MountArg::parse(&text("/a:b")).unwrap().guest, real.join("a:b"));
    }

    #[test]
    fn others_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for (tail, reason) in [
            ("/absent", "--rw"),
            ("/file", "not a directory"),
            (":data", "begins with a slash"),
            (":/data/../x", "no `..`"),
            (":/", "root directory"),
            (":/proc", "the guest's own"),
        ] {
            let error = MountArg::parse(&format!("{}{tail}", folder.path().display())).unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{error:#}");
        }
        let many = vec![folder.path().display().to_string(); MOST + 1];
        assert!(MountArg::parse_all(&many).is_err());
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        let nested = ["/inner:/data", ":/other"].map(|tail| format!("{}{tail}", folder.path().display()));
        let error = MountArg::parse_all(&nested).unwrap_err().to_string();
        assert!(error.contains("in common"), "{error}");
    }
}
