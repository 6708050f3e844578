//! `--file HOST[:GUEST]`: a file for the guest, and its path there.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail, ensure};

/// A file or folder to copy into the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileArg {
    /// The path on the host.
    pub host: PathBuf,
    /// The path in the guest, without the leading slash. It is empty for the root.
    pub guest: String,
}

impl FileArg {
    /// Parses `HOST[:GUEST]`. Without GUEST the path is the same in the guest, and a relative path starts at
    /// `/`, the program's current directory. A GUEST with a slash at the end is the folder to copy into, as
    /// with `cp`.
    pub fn parse(text: &str) -> Result<Self> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if !Path::new(text).exists() => (host, Some(guest)),
            _ => (text, None),
        };
        ensure!(!host.is_empty() && guest != Some(""), "--file {text}: a path is empty");
        let place = match guest {
            Some(folder) if folder.ends_with('/') => &format!("{folder}{}", last_name(host)),
            Some(place) => place,
            None => host,
        };
        match (normal(place), guest) {
            (Some(guest), _) => Ok(FileArg { host: host.into(), guest }),
            (None, Some(guest)) => {
                bail!("--file {text}: {guest} has a `..`: give the guest's path without it")
            }
            (None, None) => bail!("--file {text}: say where it goes in the guest, as in --file {text}:/data"),
        }
    }
}

impl FileArg {
    /// Returns the path on the host of the guest's file `path` (without the leading slash), if it came with
    /// this argument.
    pub fn host_of(&self, path: &str) -> Option<PathBuf> {
        let rest = if self.guest.is_empty() { path } else { path.strip_prefix(&self.guest)? };
        match rest.strip_prefix('/') {
            None if rest.is_empty() => Some(self.host.clone()),
            None if self.guest.is_empty() => Some(self.host.join(rest)),
            None => None,
            Some(inside) => Some(self.host.join(inside)),
        }
    }
}

/// Returns the name of a file or folder in the folder that it is copied into. For `FOLDER/.` the contents are
/// copied.
fn last_name(host: &str) -> &str {
    let name = Path::new(host).file_name().filter(|_| !host.ends_with("/."));
    name.and_then(OsStr::to_str).unwrap_or_default()
}

/// Returns a guest path without `.`, doubled slashes and the leading slash, or `None` if it has a `..`.
fn normal(path: &str) -> Option<String> {
    let parts =
        Path::new(path).components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    let names = parts.map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    Some(names.collect::<Option<Vec<_>>>()?.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String) {
        let file_arg = FileArg::parse(text).unwrap();
        (file_arg.host.display().to_string(), file_arg.guest)
    }

    fn refused(text: &str) -> String {
        FileArg::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn guest_paths_follow_the_host_unless_told() {
        assert_eq!(parsed("/usr/x.txt"), ("/usr/x.txt".into(), "usr/x.txt".into()));
        assert_eq!(parsed("./data/x/"), ("./data/x/".into(), "data/x".into()));
        assert_eq!(parsed("../x:/in//y"), ("../x".into(), "in/y".into()));
        assert!(refused("x:").contains("empty") && refused(":/x").contains("empty"));
    }

    #[test]
    fn a_slash_at_the_end_means_into_that_folder() {
        assert_eq!(parsed("a/nums:/q/").1, "q/nums");
        assert_eq!(parsed("nums:/").1, "nums");
        assert_eq!(parsed("folder/:/q/").1, "q/folder");
        assert_eq!(parsed("folder/.:/q/").1, "q");
        assert_eq!(parsed("..:/").1, "");
    }

    #[test]
    fn the_hint_is_about_the_path_that_is_wrong() {
        assert!(refused("../x").ends_with("as in --file ../x:/data"));
        assert!(refused("x:/a/../b").ends_with("/a/../b has a `..`: give the guest's path without it"));
    }

    #[test]
    fn a_path_of_the_guest_leads_back() {
        let file_arg = |guest: &str| FileArg { host: "/host/x".into(), guest: guest.to_owned() };
        let back = |guest, path| file_arg(guest).host_of(path).map(|path| path.display().to_string());
        assert_eq!(back("data/x", "data/x"), Some("/host/x".to_owned()));
        assert_eq!(back("data", "data/in/y"), Some("/host/x/in/y".to_owned()));
        assert_eq!(back("", "bin/y"), Some("/host/x/bin/y".to_owned()));
        assert_eq!(back("data", "database"), None);
        assert_eq!(back("data", "other"), None);
    }
}
