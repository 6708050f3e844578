//! From the meter's sites to places: names of calls, callers in the program, functions of the kernel.

use std::collections::BTreeMap;

use super::modules::{Frame, Modules};
use super::{Counts, FRAMES, FUNCTIONS, Place};
use crate::meter::names::{Kernel, is_plumbing};
use crate::meter::output::Site;

/// The name of page faults.
pub const FAULTS: &str = "page faults";
/// The name of interrupts.
pub const INTERRUPTS: &str = "interrupts and ticks";
/// The name of what the program did not cause itself.
pub const OTHER: &str = "kernel threads and idle CPUs";
/// The place of what no program called.
pub const NOWHERE: &str = "no place in the program";
/// The place of calls of another program, such as the one that starts it.
const ANOTHER: &str = "another program";

/// Returns the places of all sites, those with most lines first. Sites of one call with the same place in
/// words are one, with the callers of the worst.
pub fn places(sites: &[Site], kernel: &Kernel, modules: &Modules) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut known: BTreeMap<(String, String), usize> = BTreeMap::new();
    for site in sites {
        let place = place(site, kernel, modules);
        let key = (place.counts.call.clone(), place.place.clone());
        match known.get(&key) {
            Some(number) => merge(&mut places[*number], &place),
            None => {
                known.insert(key, places.len());
                places.push(place);
            }
        }
    }
    let rank = |place: &Place| {
        let Counts { lines, interrupts, instructions, .. } = place.counts;
        std::cmp::Reverse((lines, interrupts, instructions))
    };
    places.sort_by_key(rank);
    places.iter_mut().for_each(|place| place.kernel.truncate(FUNCTIONS));
    places
}

fn merge(place: &mut Place, other: &Place) {
    place.counts.add(&other.counts);
    for (name, count) in &other.kernel {
        match place.kernel.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known += count,
            None => place.kernel.push((name.clone(), *count)),
        }
    }
    sort(&mut place.kernel);
}

fn sort(functions: &mut [(String, u64)]) {
    functions.sort_by(|(one, less), (other, more)| more.cmp(less).then_with(|| one.cmp(other)));
}

fn place(site: &Site, kernel: &Kernel, modules: &Modules) -> Place {
    let call = call(site);
    // The program that called execve is another one than the program that it started.
    let is_foreign = call == "execve" || modules.is_foreign(site);
    let mut frames = match site.cause.as_str() {
        "call" | "fault" if site.pc.0 != 0 && !is_foreign => {
            modules.frames(site, |frame| is_plain(frame, &call))
        }
        _ => Vec::new(),
    };
    frames.truncate(FRAMES);
    let at = telling(&frames, &call);
    let nowhere = if is_foreign { ANOTHER } else { NOWHERE };
    let place = frames.get(at).map_or_else(|| nowhere.to_owned(), Frame::describe);
    let via = frames[..at].iter().rev().filter(|frame| !is_plain(frame, &call));
    let via = via.filter_map(|frame| frame.function.clone()).collect();
    let counts = Counts {
        call,
        count: site.entries,
        instructions: site.instructions,
        lines: site.transfers,
        invalidations: site.invalidations,
        interrupts: site.sent,
    };
    Place { counts, place, via, frames, kernel: functions(site, kernel) }
}

/// Returns the name of the call, or of another cause.
fn call(site: &Site) -> String {
    match (site.cause.as_str(), site.number) {
        ("call", Some(number)) => abi::syscalls::find(number)
            .map_or_else(|| format!("system call {number}"), |entry| entry.name.to_owned()),
        ("call", None) => "a system call".to_owned(),
        ("fault", _) => FAULTS.to_owned(),
        ("interrupt", _) => INTERRUPTS.to_owned(),
        _ => OTHER.to_owned(),
    }
}

/// Returns whether a function only makes the call, or belongs to the language, and so tells nothing.
fn is_plain(frame: &Frame, call: &str) -> bool {
    let source = frame.source.as_ref().map_or("", |(file, _)| file);
    let function = frame.function.as_deref().unwrap_or_default();
    is_plumbing(source) || is_wrapper(function, call) || function == "_start"
}

/// Returns the index of the frame that tells most: the innermost of the program itself, or with debug
/// information, or with a name.
fn telling(frames: &[Frame], call: &str) -> usize {
    let first = |tells: &dyn Fn(&Frame) -> bool| {
        frames.iter().position(|frame| tells(frame) && !is_plain(frame, call))
    };
    let found = first(&|frame| frame.is_program);
    let found = found.or_else(|| first(&|frame| frame.source.is_some()));
    found.or_else(|| first(&|frame| frame.function.is_some())).unwrap_or(0)
}

/// Returns whether a function of the C library only makes this call.
fn is_wrapper(function: &str, call: &str) -> bool {
    let name = function.trim_start_matches("__").trim_start_matches("GI_").trim_start_matches('_');
    let name = name.strip_suffix("_nocancel").unwrap_or(name);
    let arguments =
        name.strip_prefix("syscall").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    arguments
        || name == call
        || name.strip_suffix("64") == Some(call)
        || name.strip_prefix("libc_") == Some(call)
}

/// Returns the kernel's functions that took lines for this site.
fn functions(site: &Site, kernel: &Kernel) -> Vec<(String, u64)> {
    let mut functions: BTreeMap<String, u64> = BTreeMap::new();
    for (pc, count) in &site.code {
        let name = kernel.function(pc.0).unwrap_or_else(|| format!("{:#x}", pc.0));
        *functions.entry(name).or_default() += count;
    }
    let mut functions: Vec<(String, u64)> = functions.into_iter().collect();
    sort(&mut functions);
    functions
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::guest::protocol::Address;
    use crate::meter::kallsyms::tests::kernel;

    fn frame(function: &str, is_program: bool) -> Frame {
        let function = Some(function.to_owned()).filter(|name| !name.is_empty());
        Frame { function, source: None, file: None, address: "0x1".to_owned(), is_program }
    }

    #[test]
    fn the_innermost_function_of_the_program_tells_most() {
        let frames =
            [frame("munmap", false), frame("free", false), frame("shrink", true), frame("main", true)];
        assert_eq!(telling(&frames, "munmap"), 2);
        assert_eq!(telling(&frames[..2], "munmap"), 1);
        assert_eq!(telling(&[frame("", false), frame("clone3", false)], "futex"), 1);
        assert_eq!(telling(&[], "futex"), 0);
        let source = Some(("/rustc/x/library/core/src/ptr/mod.rs".to_owned(), 1));
        let language = Frame { source, ..frame("write", true) };
        assert_eq!(telling(&[frame("__syscall2", true), language, frame("round", true)], "munmap"), 2);
    }

    #[test]
    fn the_c_librarys_own_function_for_a_call_is_not_told() {
        for (function, call) in [
            ("__munmap", "munmap"),
            ("mmap64", "mmap"),
            ("__GI___munmap", "munmap"),
            ("syscall", "futex"),
            ("__syscall2", "munmap"),
            ("__libc_read", "read"),
            ("__read_nocancel", "read"),
        ] {
            assert!(is_wrapper(function, call), "{function}");
        }
        assert!(
            !is_wrapper("malloc", "mmap")
                && !is_wrapper("mmap_arena", "mmap")
                && !is_wrapper("syscalls", "mmap")
        );
    }

    #[test]
    fn sites_of_one_place_are_one() {
        let stock = Kernel::Linux(kernel());
        let site = |number, pc, transfers| Site {
            cause: "call".to_owned(),
            number: Some(number),
            pc: Address(pc),
            ending: None,
            callers: Vec::new(),
            entries: 2,
            instructions: 100,
            transfers,
            invalidations: 1,
            sent: 3,
            code: vec![(Address(0xffff_ffff_8100_0015), transfers - 1), (Address(0xffff_ffff_8100_0025), 1)],
            stack: None,
        };
        let sites = [site(11, 0x1000, 5), site(11, 0x1000, 7), site(9, 0x1000, 20), site(11, 0x2000, 2)];
        let found = places(&sites, &stock, &Modules::find(&[], &[]));
        let told: Vec<_> =
            found.iter().map(|place| (place.counts.call.as_str(), place.counts.lines)).collect();
        assert_eq!(told, [("mmap", 20), ("munmap", 12), ("munmap", 2)]);
        assert_eq!(
            found[1].counts,
            Counts {
                call: "munmap".into(),
                count: 4,
                instructions: 200,
                lines: 12,
                invalidations: 2,
                interrupts: 6
            }
        );
        assert_eq!(found[1].kernel, [("function_1".to_owned(), 10), ("function_2".to_owned(), 2)]);
        assert_eq!(found[1].place, "code at 0x1000");
    }

    #[test]
    fn causes_have_names() {
        let site = |cause: &str, number| Site {
            cause: cause.to_owned(),
            number,
            pc: Address(0),
            ending: None,
            callers: Vec::new(),
            entries: 1,
            instructions: 1,
            transfers: 0,
            invalidations: 0,
            sent: 0,
            code: Vec::new(),
            stack: None,
        };
        assert_eq!(call(&site("call", Some(202))), "futex");
        assert_eq!(call(&site("call", Some(99_999))), "system call 99999");
        assert_eq!(
            (call(&site("fault", None)).as_str(), call(&site("other", None)).as_str()),
            (FAULTS, OTHER)
        );
    }
}
