//! The libraries of a dynamic program, found as its dynamic linker finds them. Nothing is executed for that.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRTAB, EM_X86_64, FileHeader64, PT_INTERP, PT_LOAD};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::file_arg::FileArg;

/// The linker's cache, which tells a guest the places of libraries that are in no usual folder.
const CACHE: &str = "/etc/ld.so.cache";
/// A library that glibc opens when a thread ends early, though no program names it.
const UNWINDER: &str = "libgcc_s.so.1";
/// The folders of a linker without any configuration: Debian's, then other distributions'.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// Returns the linker and all libraries of a program, each for its own path in the guest. A static program
/// has none. `first` are the folders that are searched before others, as by LD_LIBRARY_PATH.
pub fn of(program: &Path, first: &OsStr) -> Result<Vec<FileArg>> {
    let Some(linker) = read(program)?.and_then(|file| file.linker) else { return Ok(Vec::new()) };
    let folders = folders(&linker, first);
    let mut found = BTreeSet::from([linker.clone()]);
    let mut waiting = vec![(program.to_owned(), Vec::new())];
    while let Some((path, inherited)) = waiting.pop() {
        let Some(file) = read(&path)? else { continue };
        let own = file.folders(&path);
        let searched: Vec<PathBuf> = own.iter().chain(&inherited).chain(&folders).cloned().collect();
        for name in file.needed {
            let library = search(&name, &searched).with_context(|| missing(&name, &path))?;
            if found.insert(library.clone()) {
                waiting.push((library, own.clone()));
            }
        }
    }
    let is_glibc = found.iter().any(|path| path.ends_with("libc.so.6"));
    found.extend(search(UNWINDER, &folders).filter(|_| is_glibc));
    found.extend([PathBuf::from(CACHE)].into_iter().filter(|cache| is_glibc && cache.is_file()));
    Ok(found.into_iter().map(at_own_path).collect())
}

fn missing(name: &str, path: &Path) -> String {
    format!(
        "{} needs the library {name}, which is in none of the dynamic linker's folders: install it, or name its folder in \
         LD_LIBRARY_PATH",
        path.display()
    )
}

/// Returns a file of the host for the same path in the guest.
pub fn at_own_path(host: PathBuf) -> FileArg {
    let guest = host.display().to_string().trim_start_matches('/').to_owned();
    FileArg { host, guest }
}

/// The part of a file that the linker reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Dynamic {
    linker: Option<PathBuf>,
    needed: Vec<String>,
    paths: Vec<String>,
}

impl Dynamic {
    /// Returns the folders that the file names itself.
    fn folders(&self, path: &Path) -> Vec<PathBuf> {
        let origin = path.parent().unwrap_or(Path::new("/")).display().to_string();
        let expand = |folder: &str| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
        let all = self.paths.iter().flat_map(|list| list.split(':'));
        all.filter(|folder| !folder.is_empty()).map(|folder| expand(folder).into()).collect()
    }
}

/// Returns what the linker reads in a file, or nothing if it is none for this machine.
fn read(path: &Path) -> Result<Option<Dynamic>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Option<Dynamic> {
    let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    if header.e_machine(endian) != EM_X86_64 {
        return None;
    }
    let linker = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP);
    let linker = linker.and_then(|segment| segment.data(endian, bytes).ok());
    let mut found = Dynamic {
        linker: linker.map(|name| OsStr::from_bytes(name.strip_suffix(&[0]).unwrap_or(name)).into()),
        ..Dynamic::default()
    };
    let entries = segments.iter().find_map(|segment| segment.dynamic(endian, bytes).ok().flatten());
    let entries = entries.unwrap_or_default();
    let of = |tag: elf::DynamicTag| {
        entries.iter().filter(move |entry| entry.tag(endian) == tag).map(|entry| entry.d_val(endian))
    };
    let strings = of(DT_STRTAB).next().and_then(|address| {
        let holds = |segment: &&elf::ProgramHeader64<Endianness>| {
            let start = segment.p_vaddr(endian);
            segment.p_type(endian) == PT_LOAD && (start..start + segment.p_filesz(endian)).contains(&address)
        };
        let segment = segments.iter().find(holds)?;
        bytes.get((address - segment.p_vaddr(endian) + segment.p_offset(endian)) as usize..)
    });
    let text = |offset: u64| {
        let rest = strings?.get(offset as usize..)?;
        Some(String::from_utf8_lossy(rest.split(|byte| *byte == 0).next()?).into_owned())
    };
    found.needed = of(DT_NEEDED).filter_map(text).collect();
    found.paths = of(DT_RPATH).chain(of(DT_RUNPATH)).filter_map(text).collect();
    Some(found)
}

fn search(name: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let places = match name.contains('/') {
        true => vec![PathBuf::from(name)],
        false => folders.iter().map(|folder| folder.join(name)).collect(),
    };
    // A library for another machine is passed over, as by the linker.
    places.into_iter().find(|path| fs::read(path).is_ok_and(|bytes| parse(&bytes).is_some()))
}

/// Returns the folders of this linker, the first to search first.
fn folders(linker: &Path, first: &OsStr) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::env::split_paths(first).filter(|folder| folder.is_absolute()).collect();
    let is_musl = linker.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-musl"));
    if is_musl {
        let text = fs::read_to_string("/etc/ld-musl-x86_64.path");
        let text = text.unwrap_or_else(|_| "/lib:/usr/local/lib:/usr/lib".to_owned());
        all.extend(text.split([':', '\n']).filter(|folder| !folder.is_empty()).map(PathBuf::from));
    } else {
        configured(Path::new("/etc/ld.so.conf"), &mut all, 0);
        all.extend(USUAL.map(PathBuf::from));
    }
    all
}

/// Adds the folders that a configuration file of glibc's linker names.
fn configured(file: &Path, folders: &mut Vec<PathBuf>, depth: usize) {
    let text = fs::read_to_string(file).unwrap_or_default();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        match line.strip_prefix("include ") {
            Some(pattern) if depth < 4 => {
                included(pattern.trim()).iter().for_each(|file| configured(file, folders, depth + 1));
            }
            Some(_) => {}
            None if line.starts_with('/') => folders.push(line.into()),
            None => {}
        }
    }
}

/// Returns the files of a pattern like `/etc/ld.so.conf.d/*.conf`, sorted.
fn included(pattern: &str) -> Vec<PathBuf> {
    let Some((folder, name)) = pattern.rsplit_once('/') else { return Vec::new() };
    let (start, end) = name.split_once('*').unwrap_or((name, ""));
    let fits = |path: &PathBuf| {
        path.file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with(start) && name.ends_with(end))
    };
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(fits).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This test is a dynamic program itself.
    #[test]
    fn a_dynamic_program_has_a_linker_and_libc() {
        let files = of(&std::env::current_exe().unwrap(), OsStr::new("")).unwrap();
        let has = |part: &str| files.iter().any(|file| file.guest.contains(part));
        assert!(has("ld-linux-x86-64.so.2") && has("libc.so.6"), "{files:?}");
        assert!(files.iter().all(|file| file.host == Path::new("/").join(&file.guest)));
    }

    #[test]
    fn a_file_names_its_own_folders() {
        let file = Dynamic { paths: vec!["$ORIGIN/../lib:/opt/x:".to_owned()], ..Dynamic::default() };
        assert_eq!(file.folders(Path::new("/a/b/prog")), [Path::new("/a/b/../lib"), Path::new("/opt/x")]);
    }

    #[test]
    fn configuration_files_include_others() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("main", &format!("/one # a comment\ninclude {}/*.conf\nrelative\n", folder.display()));
        write("b.conf", "/three\n");
        write("a.conf", "/two\n");
        write("c.other", "/four\n");
        let mut folders = Vec::new();
        configured(&folder.join("main"), &mut folders, 0);
        assert_eq!(folders, ["/one", "/two", "/three"].map(PathBuf::from));
    }

    #[test]
    fn a_missing_library_and_its_user_are_named() {
        assert_eq!(search("libno-such-library.so.7", &[PathBuf::from("/lib")]), None);
        let text = missing("libx.so.7", Path::new("/bin/prog"));
        assert!(text.contains("/bin/prog needs the library libx.so.7") && text.contains("LD_LIBRARY_PATH"));
        assert_eq!(parse(b"text"), None);
    }
}
