//! The files of which a program's code is made, and where they were loaded.
//!
//! No guest tells that. The meter keeps a piece of every page of code that ran. A piece is looked for in all
//! files, at all pages. The place that most pieces of a file agree upon is where it was loaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use framehop::Module;
use object::{Object, ObjectSegment, SegmentFlags, elf};
use serde::Serialize;

use crate::crash::unwind;
use crate::guest::protocol::Address;
use crate::meter::names::{KERNEL_HALF, strip_hash};
use crate::meter::output::{Site, Stack};
use crate::symbols::Symbols;

const PAGE: u64 = 4096;
/// Bytes of the `syscall` instruction.
const SYSCALL: u64 = 2;
/// Bytes of a piece that tell enough.
const LEAST: usize = 12;

/// A place in the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frame {
    /// The function, if its name is known.
    pub function: Option<String>,
    /// The source file and the line, if there is debug information.
    pub source: Option<(String, u32)>,
    /// The program's or library's file, or none for code that was made at run time.
    pub file: Option<PathBuf>,
    /// The address in that file, or in memory.
    pub address: String,
    /// Set if the file is the program, not a library.
    pub is_program: bool,
}

impl Frame {
    /// Describes the place in a few words.
    pub fn describe(&self) -> String {
        let file = self.file.as_deref().map(short);
        match (&self.function, &self.source, file) {
            (Some(function), Some((source, line)), _) => {
                format!("{function} at {}:{line}", short(Path::new(source)))
            }
            (Some(function), None, Some(file)) => format!("{function} in {file}"),
            (Some(function), None, None) => function.clone(),
            (None, _, Some(file)) => format!("{file}+{}", self.address),
            (None, _, None) => format!("code at {}", self.address),
        }
    }
}

fn short(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The files that were found.
pub struct Modules(Vec<Loaded>);

struct Loaded {
    path: PathBuf,
    is_program: bool,
    /// Its addresses in memory.
    start: u64,
    end: u64,
    bias: u64,
    symbols: Symbols,
    /// Its pieces of code, each at its address in the file.
    code: Vec<(u64, Vec<u8>)>,
    unwinding: Option<Module<Vec<u8>>>,
}

impl Modules {
    /// Finds the places of `files`, of which the first is the program, by pieces of code.
    pub fn find(files: &[PathBuf], code: &[(Address, String)]) -> Self {
        let pieces: Vec<(u64, Vec<u8>)> = code
            .iter()
            .map(|(at, bytes)| (at.0, unwind::unhex(bytes)))
            .filter(|(_, bytes)| bytes.len() >= LEAST)
            .collect();
        let loaded =
            files.iter().enumerate().filter_map(|(number, path)| Loaded::find(path, number == 0, &pieces));
        Modules(loaded.collect())
    }

    /// Returns the place of a site and its callers, the innermost first. They come from the unwind tables. If
    /// these do not lead to a function of the program, or only to functions that are plain, the return
    /// addresses on the stack follow.
    pub fn frames(&self, site: &Site, is_plain: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let unwound = site.stack.as_ref().map(|stack| self.unwound(site.pc.0, stack));
        let addresses = unwound.filter(|found| !found.is_empty()).unwrap_or_else(|| vec![site.pc.0]);
        let mut frames: Vec<Frame> = addresses.iter().flat_map(|address| self.at(*address)).collect();
        if !frames.iter().any(|frame| frame.is_program && !is_plain(frame)) {
            let new =
                site.callers.iter().map(|caller| caller.0 - 1).filter(|caller| !addresses.contains(caller));
            frames.extend(new.flat_map(|caller| self.at(caller)));
        }
        frames
    }

    fn unwound(&self, pc: u64, stack: &Stack) -> Vec<u64> {
        let modules = self.0.iter().filter_map(|loaded| loaded.unwinding.clone());
        let bytes = unwind::unhex(&stack.bytes);
        let frames = unwind::through(modules, [pc, stack.rsp.0, stack.rbp.0], stack.rsp.0, bytes);
        let addresses = frames.iter().map(|frame| frame.lookup);
        addresses.filter(|address| *address != 0 && *address < KERNEL_HALF).collect()
    }

    /// Returns whether a site is of another program, which has other code at the same address.
    pub fn is_foreign(&self, site: &Site) -> bool {
        let Some(ending) = site.ending.as_deref().map(unwind::unhex) else { return false };
        let end = site.pc.0 + SYSCALL;
        self.holding(site.pc.0).is_some_and(|loaded| {
            let here = end - ending.len() as u64 - loaded.bias;
            let same = |(start, code): &(u64, Vec<u8>)| {
                let offset = here.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
                offset.and_then(|offset| code.get(offset..)).is_some_and(|code| code.starts_with(&ending))
            };
            !loaded.code.iter().any(same)
        })
    }

    fn holding(&self, address: u64) -> Option<&Loaded> {
        self.0.iter().find(|loaded| (loaded.start..loaded.end).contains(&address))
    }

    /// Returns the functions at an address, from the innermost inlined one outwards.
    pub fn at(&self, address: u64) -> Vec<Frame> {
        let Some(loaded) = self.holding(address) else {
            let address = format!("{address:#x}");
            return vec![Frame { function: None, source: None, file: None, address, is_program: false }];
        };
        let here = address - loaded.bias;
        let frame = |function, source| Frame {
            function,
            source,
            file: Some(loaded.path.clone()),
            address: format!("{here:#x}"),
            is_program: loaded.is_program,
        };
        let inlined = loaded.symbols.inlined(here);
        if !inlined.is_empty() {
            return inlined.into_iter().map(|f| frame(Some(strip_hash(&f.name)), f.place)).collect();
        }
        let symbol = loaded.symbols.code(here);
        let name = symbol.map(|name| strip_hash(name.split("+0x").next().unwrap_or(&name)));
        vec![frame(name, None)]
    }
}

impl Loaded {
    fn find(path: &Path, is_program: bool, pieces: &[(u64, Vec<u8>)]) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let bias = bias(&file, pieces)?;
        let loaded = || file.segments().filter(|segment| segment.size() > 0);
        let start = loaded().map(|segment| segment.address()).min()?;
        let end = loaded().map(|segment| segment.address() + segment.size()).max()?;
        Some(Loaded {
            path: path.to_owned(),
            is_program,
            start: bias + start,
            end: bias + end,
            bias,
            symbols: Symbols::load(path),
            code: file
                .segments()
                .filter(is_code)
                .map(|segment| (segment.address(), segment.data().unwrap_or_default().to_vec()))
                .collect(),
            unwinding: unwind::module(&bytes, bias),
        })
    }
}

/// Returns the address in memory, minus that in the file, upon which most pieces agree.
fn bias(file: &object::File<'_>, pieces: &[(u64, Vec<u8>)]) -> Option<u64> {
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for segment in file.segments().filter(is_code) {
        let data = segment.data().unwrap_or_default();
        for (at, bytes) in pieces {
            for place in places(segment.address(), data, *at, bytes).filter(|place| place <= at) {
                *votes.entry(at - place).or_default() += bytes.len();
            }
        }
    }
    if file.kind() == object::ObjectKind::Executable {
        return votes.contains_key(&0).then_some(0);
    }
    votes.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(bias, _)| bias)
}

fn is_code(segment: &object::Segment<'_, '_>) -> bool {
    matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X))
}

/// Returns the addresses in a segment at which `bytes` lie, as far into a page as `at` is.
fn places(start: u64, data: &[u8], at: u64, bytes: &[u8]) -> impl Iterator<Item = u64> {
    let first = (at % PAGE + PAGE - start % PAGE) % PAGE;
    let offsets = (first..data.len() as u64).step_by(PAGE as usize);
    offsets
        .filter(move |offset| data[*offset as usize..].starts_with(bytes))
        .map(move |offset| start + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_lies_as_far_into_its_page_in_the_file() {
        let mut data = vec![0; 0x3000];
        data[0x1234..0x1237].copy_from_slice(&[7, 8, 9]);
        data[0x1300..0x1303].copy_from_slice(&[7, 8, 9]);
        let found = |at| places(0x401000, &data, at, &[7, 8, 9]).collect::<Vec<_>>();
        assert_eq!(found(0x7fff_0000_0234), [0x402234]);
        assert!(found(0x7fff_0000_0235).is_empty());
    }

    /// This test is a program with debug information that knows where it was loaded.
    #[test]
    fn a_program_is_found_by_a_piece_of_its_code() {
        let path = std::env::current_exe().unwrap();
        let bytes = fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let segment = file.segments().find(is_code).unwrap();
        let data = segment.data().unwrap();
        let page = |number: usize| data[number * 4096..number * 4096 + 64].to_vec();
        let base = 0x5555_5555_4000;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let pieces: Vec<_> = (1..5)
            .map(|number| {
                let at = base + segment.address() + 4096 * number as u64;
                (Address(at), hex(&page(number)))
            })
            .collect();
        let modules = Modules::find(&[path.clone(), path], &pieces);
        assert_eq!(modules.0[0].bias, base);
        assert!(modules.0[0].is_program && !modules.0[1].is_program);
        let unknown = modules.at(0x10);
        assert_eq!((unknown[0].describe().as_str(), unknown.len()), ("code at 0x10", 1));
        let (base, data) = (base + segment.address(), &data[..4200]);
        let inside = modules.at(base + 64);
        assert!(inside.iter().all(|frame| frame.is_program && frame.file.is_some()));
        let site = |ending: &[u8]| Site {
            cause: "call".to_owned(),
            number: Some(9),
            pc: Address(base + 98),
            ending: Some(hex(ending)),
            callers: vec![Address(0x21)],
            entries: 1,
            instructions: 1,
            transfers: 1,
            invalidations: 1,
            sent: 1,
            code: Vec::new(),
            stack: None,
        };
        let own = site(&data[84..100]);
        assert!(!modules.is_foreign(&own) && modules.is_foreign(&site(&[7; 16])));
        let of = |site: &Site, is_plain: bool| modules.frames(site, |_| is_plain);
        let last = |frames: Vec<Frame>| frames.last().unwrap().describe();
        assert_ne!(last(of(&own, false)), "code at 0x20", "the callers on the stack are not needed");
        assert_eq!(last(of(&own, true)), "code at 0x20");
        let elsewhere = Site { pc: Address(0x10), ..own };
        let described: Vec<_> = of(&elsewhere, false).iter().map(Frame::describe).collect();
        assert_eq!(described, ["code at 0x10", "code at 0x20"]);
    }

    #[test]
    fn places_are_described_by_what_is_known() {
        let frame = |function: Option<&str>, source: Option<(&str, u32)>, file: Option<&str>| Frame {
            function: function.map(str::to_owned),
            source: source.map(|(file, line)| (file.to_owned(), line)),
            file: file.map(PathBuf::from),
            address: "0x12".to_owned(),
            is_program: false,
        };
        assert_eq!(
            frame(Some("grow"), Some(("/x/arena.c", 212)), Some("/bin/x")).describe(),
            "grow at arena.c:212"
        );
        assert_eq!(frame(Some("munmap"), None, Some("/lib/libc.so.6")).describe(), "munmap in libc.so.6");
        assert_eq!(frame(None, None, Some("/lib/libc.so.6")).describe(), "libc.so.6+0x12");
        assert_eq!(frame(None, None, None).describe(), "code at 0x12");
    }
}
