//! The start: finds the program, loads it and its interpreter, makes the stack that the kernel would
//! have made, and enters it.
//!
//! Each page that is touched is a fault. So functions with buffers are not inlined: they use the same pages
//! of the stack one after the other.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::Errno;
use pathreads::elf::{
    self, Dynamic, Headers, MOST_OF_DYNAMIC, PHENT, PT_DYNAMIC, PT_GNU_STACK, PT_NOTE, SCRIPT_HEAD, Script,
    Segment,
};
use pathreads::page_start;

use crate::program_file::File;
use crate::sys::{self, Result, harmless, nr};
use crate::{dispatch, entry, exec, image, isolate, patch, pool, spawn, user};

/// The size of the boot's stack.
pub const STACK_SIZE: usize = 64 << 10;

/// Memory that only the boot uses, before the program's first instruction, or that nothing writes after it.
#[repr(align(16))]
pub struct OfBoot<T>(UnsafeCell<T>);

// SAFETY: the boot is alone in the process.
unsafe impl<T> Sync for OfBoot<T> {}

/// The boot's stack.
pub static STACK: OfBoot<[u8; STACK_SIZE]> = OfBoot(UnsafeCell::new([0; STACK_SIZE]));

/// The most bytes of a path, with its zero.
pub const PATH: usize = 4096;

/// The words for the program's stack that the boot's has room for.
const WORDS: usize = 256;

/// The path to which `/proc/self/exe` should lead, with a zero at the end.
static EXE: OfBoot<[u8; PATH]> = OfBoot(UnsafeCell::new([0; PATH]));

/// The path at which the program was found.
static FOUND: OfBoot<[u8; PATH]> = OfBoot(UnsafeCell::new([0; PATH]));

/// The paths of interpreters of scripts, and their arguments, which become arguments of the program.
static SCRIPTS: OfBoot<[[u8; SCRIPT_HEAD + 2]; 2 * exec::SCRIPTS]> =
    OfBoot(UnsafeCell::new([[0; SCRIPT_HEAD + 2]; 2 * exec::SCRIPTS]));

const AT_NULL: u64 = 0;
const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_EXECFN: u64 = 31;
const AT_SYSINFO_EHDR: u64 = 33;

const NOT_RUNNABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

const USAGE: &[u8] = b"usage: pathreads [--pool | --strict | --isolate] [--stats] [--] PROGRAM ARGUMENTS...";

/// Whether unmapped memory is inaccessible at once.
static IS_STRICT: AtomicBool = AtomicBool::new(false);

/// The process that prints counters at its end, or 0. A child that shares the memory is another one.
static STATS_OF: AtomicU64 = AtomicU64::new(0);

/// Returns whether counters are to be printed when the program exits.
pub fn prints_counters() -> bool {
    STATS_OF.load(Ordering::Relaxed) != 0
}

/// Returns whether unmapped memory is inaccessible at once.
pub fn is_strict() -> bool {
    IS_STRICT.load(Ordering::Relaxed)
}

/// Whether threads are to have address spaces of their own.
static ISOLATES: AtomicBool = AtomicBool::new(false);

/// Returns which of `exec::OPTIONS` a program that this one executes gets.
pub fn mode() -> usize {
    if isolate::is_on() { 2 } else { usize::from(is_strict()) }
}

/// Prints what was asked for, when the program exits.
pub fn at_exit() {
    let process = STATS_OF.load(Ordering::Relaxed);
    if process != 0 && harmless!(nr::GETPID) == Ok(process) {
        if isolate::is_on() {
            return isolate::stats::print();
        }
        pool::print_counters();
    }
}

/// Returns what `/proc/self/exe` should lead to.
pub fn exe() -> &'static [u8] {
    // SAFETY: nothing writes it after the boot.
    let path = unsafe { &*EXE.0.get() };
    &path[..length(path)]
}

/// Returns the address of the same as a string.
pub fn exe_path() -> u64 {
    EXE.0.get() as u64
}

fn length(path: &[u8]) -> usize {
    path.iter().position(|byte| *byte == 0).unwrap_or(path.len())
}

/// Returns whether the path at an address of the program is its own `/proc/self/exe`, or the same with
/// the number of the process.
pub fn is_exe_link(path: u64) -> bool {
    let mut text = [0; 24];
    let length = user::read_text(path, &mut text);
    let Some(rest) = text[..length].strip_prefix(b"/proc/") else { return false };
    if rest.starts_with(b"self/exe\0") {
        return true;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let value = rest[..digits].iter().fold(0_u64, |value, byte| value * 10 + u64::from(byte - b'0'));
    digits > 0 && rest[digits..].starts_with(b"/exe\0") && harmless!(nr::GETPID) == Ok(value)
}

/// The words that the kernel put on the stack.
#[derive(Clone, Copy)]
struct Start {
    stack: *const u64,
}

impl Start {
    fn word(self, index: usize) -> u64 {
        // SAFETY: the kernel wrote the words up to the end of the auxiliary vector, and no caller asks
        // for others.
        unsafe { *self.stack.add(index) }
    }

    /// Returns the address of a word.
    fn address(self, index: usize) -> u64 {
        self.stack as u64 + index as u64 * 8
    }

    fn arguments(self) -> usize {
        self.word(0) as usize
    }

    fn argument(self, index: usize) -> u64 {
        self.word(1 + index)
    }

    /// Returns the index of the first word of the environment.
    fn environment(self) -> usize {
        self.arguments() + 2
    }

    /// Returns the index of the first word of the auxiliary vector.
    fn auxiliary(self) -> usize {
        let mut index = self.environment();
        while self.word(index) != 0 {
            index += 1;
        }
        index + 1
    }

    /// Returns the index after the auxiliary vector.
    fn end(self) -> usize {
        let mut index = self.auxiliary();
        while self.word(index) != AT_NULL {
            index += 2;
        }
        index + 2
    }

    /// Returns a value of the auxiliary vector.
    fn auxiliary_value(self, kind: u64) -> Option<u64> {
        let found = (self.auxiliary()..self.end()).step_by(2).find(|index| self.word(*index) == kind);
        found.map(|index| self.word(index + 1))
    }

    /// Returns the end of the stack. The last string is the path of the runtime.
    fn top(self) -> u64 {
        let last = self.auxiliary_value(AT_EXECFN).unwrap_or(self.stack as u64);
        pathreads::page_end(last + text(last).len() as u64 + 1)
    }

    /// Returns whether a variable for the dynamic linker names the program or its place.
    fn has_linker_variable(self) -> bool {
        let mut texts = (self.environment()..self.auxiliary() - 1).map(|index| text(self.word(index)));
        texts.any(|text| text.starts_with(b"LD_") && names_program(text))
    }

    /// Returns the value of a variable of the environment.
    fn variable(self, name: &[u8]) -> Option<&'static [u8]> {
        let texts = (self.environment()..self.auxiliary() - 1).map(|index| text(self.word(index)));
        let value = |text: &'static [u8]| text.strip_prefix(name)?.strip_prefix(b"=");
        texts.filter_map(value).next()
    }
}

/// Returns a string that the kernel put on the stack, without its zero.
pub fn text(at: u64) -> &'static [u8] {
    // SAFETY: arguments and variables are strings, and stay where they are.
    unsafe { core::ffi::CStr::from_ptr(at as *const core::ffi::c_char) }.to_bytes()
}

/// The program to be loaded.
struct Program {
    /// Its path, as `execve` would get it.
    path: u64,
    /// Whether it is known that the runtime can load it.
    is_checked: bool,
    /// Its arguments that are not the runtime's own.
    first: usize,
    /// The words that scripts put before the second of these.
    inserted: [u64; 3 * exec::SCRIPTS],
    count: usize,
}

/// The addresses with which the program is entered.
struct Loaded {
    entry: u64,
    phdr: u64,
    phnum: u64,
    base: u64,
    own_entry: u64,
    executable_stack: bool,
    has_vdso: bool,
    is_go: bool,
    /// The code of the dynamic linker, if its calls need not be seen at the start.
    linker: Option<Piece>,
}

/// The address and length of a piece of memory.
type Piece = (u64, u64);

/// Loads the program and enters it.
pub extern "C" fn boot(stack: *const u64) -> ! {
    // The small variables are written before they are read: a page of zeroes that is read first faults twice.
    STATS_OF.store(0, Ordering::Relaxed);
    let start = Start { stack };
    let mut program = find(start);
    let named = program.path;
    let mut file = File::closed();
    let isolates = ISOLATES.load(Ordering::Relaxed);
    let mut is_loadable = || (!isolates || exec::has_room(true)) && file.open_loadable(named);
    if map_tables().is_err() || !program.is_checked && !is_loadable() {
        execute_plainly(start, named, program.first);
    }
    open_program(&mut program, named, &mut file);
    let interpreter = match file.open_interpreter() {
        Ok(interpreter) => interpreter,
        Err(error) if program.is_checked => refuse(named, error),
        Err(_) => execute_plainly(start, named, program.first),
    };
    patch::reserve();
    if isolates {
        isolate::begin();
        isolate::begin_stack();
        dispatch::handle_all();
    }
    spawn::begin();
    if isolate::is_on() && !spawn::dispatches() {
        sys::fail(
            b"--isolate needs syscall user dispatch, which is forbidden here or not in this Linux",
            125,
        );
    }
    if !isolate::is_on() && spawn::dispatches() {
        patch::search_later();
    }
    remember_exe(&file, program.path);
    name_process(named);
    let mut loaded = load(&file, interpreter, program.path).unwrap_or_else(|error| refuse(named, error));
    sys::close(file.number);
    interpreter.into_iter().for_each(sys::close);
    if let Some(vdso) = start.auxiliary_value(AT_SYSINFO_EHDR) {
        loaded.has_vdso = patch::add_vdso(vdso);
    }
    if loaded.is_go {
        crate::stack::handle_calls_apart();
    }
    if loaded.executable_stack {
        make_executable(stack as u64);
    }
    let is_seen = STATS_OF.load(Ordering::Relaxed) != 0 || start.has_linker_variable();
    let map = arguments_map(start, &program);
    let top = start.top();
    let stack = make_stack(start, &program, named, &loaded);
    describe(if isolate::is_on() { keep_arguments(map) } else { map }, Start { stack: stack as *const u64 });
    if isolate::is_on() {
        isolate_stack(stack, top, loaded.executable_stack);
    } else if spawn::dispatches() {
        pool::switch_on();
        if let Some((first, length)) = loaded.linker.filter(|_| !is_seen) {
            spawn::leave_start_to(first, length);
        }
    }
    // SAFETY: the program is loaded, and its stack is made.
    unsafe { entry::launch(stack, loaded.entry) }
}

/// Maps the runtime's large tables and stacks, which are in no segment of its file: the kernel would end it
/// without a word where data is limited.
fn map_tables() -> Result {
    let [begin, end] = [&entry::tables_begin, &entry::tables_end].map(entry::address);
    let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
    // SAFETY: nothing has used the tables yet, and nothing else lies at these addresses.
    unsafe { sys::mmap(begin, end - begin, sys::PROT_READ | sys::PROT_WRITE, flags, sys::NO_FILE, 0) }
}

/// Has the kernel execute a program that the runtime cannot load as the kernel would.
fn execute_plainly(start: Start, path: u64, first: usize) -> ! {
    let is_executable = harmless!(nr::ACCESS, path, exec::X_OK);
    if is_executable.is_ok() {
        sys::say(&[b"pathreads: ", text(path), b": Linux executes it without the runtime\n"]);
    }
    let (arguments, environment) = (start.address(1 + first), start.address(start.environment()));
    match harmless!(nr::EXECVE, path, arguments, environment) {
        Ok(_) => sys::exit(NOT_RUNNABLE),
        Err(error) => refuse(path, error),
    }
}

fn refuse(path: u64, error: Errno) -> ! {
    let why: &[u8] = match error {
        Errno::ENOENT => b"no such program",
        Errno::EACCES => b"no permission to execute it",
        Errno::ENOEXEC => b"neither a program for x86-64 nor a script",
        Errno::ENOMEM | Errno::EEXIST => b"its addresses are not free",
        _ => b"it cannot be loaded",
    };
    sys::say(&[b"pathreads: ", text(path), b": ", why, b"\n"]);
    sys::exit(if error == Errno::ENOENT { NOT_FOUND } else { NOT_RUNNABLE })
}

/// Finds the program in the runtime's arguments.
#[inline(never)]
fn find(start: Start) -> Program {
    let program =
        |path, first| Program { path, is_checked: false, first, inserted: [0; 3 * exec::SCRIPTS], count: 0 };
    let mut first = 1;
    while first < start.arguments() {
        let word = text(start.argument(first));
        first += 1;
        match word {
            b"--exec" | b"--exec-strict" | b"--exec-isolate" if first + 1 < start.arguments() => {
                IS_STRICT.store(word == b"--exec-strict", Ordering::Relaxed);
                ISOLATES.store(word == b"--exec-isolate", Ordering::Relaxed);
                return Program { is_checked: true, ..program(start.argument(first), first + 1) };
            }
            b"--pool" => IS_STRICT.store(false, Ordering::Relaxed),
            b"--strict" => IS_STRICT.store(true, Ordering::Relaxed),
            b"--isolate" => ISOLATES.store(true, Ordering::Relaxed),
            b"--stats" => STATS_OF.store(harmless!(nr::GETPID).unwrap_or(0), Ordering::Relaxed),
            b"--" => break,
            _ if word.starts_with(b"-") => sys::fail(USAGE, 125),
            _ => {
                first -= 1;
                break;
            }
        }
    }
    if first >= start.arguments() {
        sys::fail(USAGE, 125);
    }
    let name = text(start.argument(first));
    if name.contains(&b'/') {
        return program(start.argument(first), first);
    }
    let path = start.variable(b"PATH").unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    match path.split(|byte| *byte == b':').find_map(|folder| in_folder(folder, name)) {
        Some(found) => program(found, first),
        None => refuse(start.argument(first), Errno::ENOENT),
    }
}

/// Returns the path of an executable file in a folder.
fn in_folder(folder: &[u8], name: &[u8]) -> Option<u64> {
    // SAFETY: the boot is alone, and no path that was made here before is used.
    let buffer = unsafe { &mut *FOUND.0.get() };
    let folder = if folder.is_empty() { b"." } else { folder };
    if folder.len() + name.len() + 2 > PATH {
        return None;
    }
    let end = folder.len() + 1 + name.len();
    buffer[..folder.len()].copy_from_slice(folder);
    buffer[folder.len()] = b'/';
    buffer[folder.len() + 1..end].copy_from_slice(name);
    buffer[end] = 0;
    let path = buffer.as_ptr() as u64;
    const O_DIRECTORY: u64 = 0o20_0000;
    let is_folder = sys::open(path, O_DIRECTORY).inspect(|file| sys::close(*file)).is_ok();
    (!is_folder && harmless!(nr::ACCESS, path, 1).is_ok()).then_some(path)
}

/// Opens the program, or the interpreter of the script that it is.
#[inline(never)]
fn open_program(program: &mut Program, named: u64, file: &mut File) {
    for depth in 0..=exec::SCRIPTS {
        if file.number == sys::NO_FILE {
            file.open(program.path).unwrap_or_else(|error| refuse(named, error));
        }
        let head = &file.head()[..file.head().len().min(SCRIPT_HEAD)];
        let Some(script) = Script::parse(head).filter(|_| depth < exec::SCRIPTS) else { return };
        program.insert(script, depth);
        sys::close(file.number);
        file.number = sys::NO_FILE;
    }
    refuse(named, Errno::ENOEXEC)
}

impl Program {
    /// Puts the interpreter, its argument and the script's path in front, in place of the script's name.
    fn insert(&mut self, script: Script<'_>, depth: usize) {
        let interpreter = keep(script.interpreter, 2 * depth);
        let argument = script.argument.map(|argument| keep(argument, 2 * depth + 1));
        let mut front = [interpreter, 0, 0];
        let mut count = 1;
        for word in argument.into_iter().chain([self.path]) {
            front[count] = word;
            count += 1;
        }
        // The one at the front is replaced: the program's name, or the last interpreter's.
        let kept = self.count.saturating_sub(1);
        self.inserted.copy_within(self.count - kept..self.count, count);
        self.inserted[..count].copy_from_slice(&front[..count]);
        self.count = count + kept;
        self.path = interpreter;
    }
}

/// Keeps a string for good.
fn keep(text: &[u8], index: usize) -> u64 {
    // SAFETY: the boot is alone, and each string has a place of its own.
    let place = unsafe { &mut (&mut *SCRIPTS.0.get())[index] };
    place[..text.len()].copy_from_slice(text);
    place[text.len()] = 0;
    place.as_ptr() as u64
}

/// Remembers the path of the program's file.
fn remember_exe(file: &File, path: u64) {
    // SAFETY: the boot is alone.
    let exe = unsafe { &mut *EXE.0.get() };
    if file.is_as_named || path_of(file.number, &mut exe[..PATH - 1]).is_err() {
        let path = text(path);
        let length = path.len().min(PATH - 1);
        exe[..length].copy_from_slice(&path[..length]);
    }
}

/// Finds the path of an open file. Returns its length, which is that of `path` if it may be longer.
pub fn path_of(file: u64, path: &mut [u8]) -> Result<usize> {
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let mut link = [0; 32];
    link[..PREFIX.len()].copy_from_slice(PREFIX);
    let mut at = PREFIX.len();
    for power in [1_000_000, 100_000, 10_000, 1000, 100, 10, 1] {
        if file >= power || power == 1 {
            link[at] = b'0' + (file / power % 10) as u8;
            at += 1;
        }
    }
    let (link_at, path_at) = (link.as_ptr() as u64, path.as_mut_ptr() as u64);
    harmless!(nr::READLINK, link_at, path_at, path.len() as u64).map(|length| length as usize)
}

/// Names the process after the program.
fn name_process(path: u64) {
    const PR_SET_NAME: u64 = 15;
    let path = text(path);
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let _ = harmless!(nr::PRCTL, PR_SET_NAME, path.as_ptr() as u64 + start as u64, 0, 0, 0);
}

/// Loads the program and its interpreter.
#[inline(never)]
fn load(file: &File, interpreter: Option<u64>, path: u64) -> Result<Loaded> {
    let headers = Headers::parse(file.head()).ok_or(Errno::ENOEXEC)?;
    let bias = image::load(file.number, headers, hint(), path)?;
    let own_entry = headers.entry.wrapping_add(bias);
    let mut loaded = Loaded {
        entry: own_entry,
        own_entry,
        phdr: headers.phdr().map_or(0, |phdr| phdr.wrapping_add(bias)),
        phnum: headers.count,
        base: 0,
        has_vdso: true,
        is_go: isolate::is_on() && is_go(file.number, headers),
        executable_stack: headers.find(PT_GNU_STACK).is_some_and(|stack| stack.flags & 1 != 0),
        linker: None,
    };
    if let Some(interpreter) = interpreter {
        let found = file.with_interpreter(|path| load_interpreter(interpreter, path))?;
        (loaded.base, loaded.entry, loaded.linker) = found.ok_or(Errno::ENOEXEC)?;
        loaded.linker = loaded.linker.filter(|_| !names_origin(file.number, headers, bias));
    }
    Ok(loaded)
}

fn is_go(file: u64, headers: Headers<'_>) -> bool {
    headers.segments().any(|segment| segment.kind == PT_NOTE && has_go_note(file, segment))
}

/// Returns whether the linker of Go has left its note in a segment.
fn has_go_note(file: u64, segment: Segment) -> bool {
    let mut notes = [0; 512];
    let length = notes.len().min(segment.file_size as usize);
    sys::read_at(file, &mut notes[..length], segment.offset)
        .is_ok_and(|length| elf::has_go_note(&notes[..length]))
}

/// Loads an interpreter. Returns its base, where it is entered, and its code if it is the C library's.
#[inline(never)]
fn load_interpreter(file: u64, path: u64) -> Result<(u64, u64, Option<Piece>)> {
    let mut head = [0; exec::HEAD];
    let length = sys::read_at(file, &mut head, 0)?;
    let headers = Headers::parse(&head[..length]).ok_or(Errno::ENOEXEC)?;
    let bias = image::load(file, headers, 0, path)?;
    let linker = if is_linker(file, headers, bias) { code_of(headers, bias) } else { None };
    Ok((bias, headers.entry.wrapping_add(bias), linker))
}

/// Returns where the code of a file lies, if it is one piece.
fn code_of(headers: Headers<'_>, bias: u64) -> Option<Piece> {
    let mut codes = headers.loads().filter(|segment| segment.flags & 1 != 0);
    let code = codes.next().filter(|_| codes.next().is_none())?;
    let (first, end) = (page_start(code.address), pathreads::page_end(code.address + code.memory_size));
    Some((first.wrapping_add(bias), end - first))
}

/// Calls `f` with a file's dynamic section and the address of its strings.
fn with_dynamic(
    file: u64,
    headers: Headers<'_>,
    bias: u64,
    f: impl FnOnce(Dynamic<'_>, u64) -> bool,
) -> bool {
    let mut bytes = [0; MOST_OF_DYNAMIC];
    let Some(dynamic) = headers.find(PT_DYNAMIC) else { return false };
    let Some(bytes) = bytes.get_mut(..dynamic.file_size as usize) else { return false };
    if sys::read_at(file, bytes, dynamic.offset) != Ok(bytes.len()) {
        return false;
    }
    let dynamic = Dynamic(bytes);
    dynamic.strings().is_some_and(|strings| f(dynamic, strings.wrapping_add(bias)))
}

/// Returns whether an interpreter is the dynamic linker of the GNU C library. Until the C library makes its
/// first call, it makes no other ones than to map files and memory: it has no handlers, threads or children.
/// That of musl is the C library itself.
#[inline(never)]
fn is_linker(file: u64, headers: Headers<'_>, bias: u64) -> bool {
    const NAME: [u8; 21] = *b"ld-linux-x86-64.so.2\0";
    with_dynamic(file, headers, bias, |dynamic, strings| {
        let mut name = [0; NAME.len()];
        let own = dynamic.name().and_then(|at| user::read(strings.wrapping_add(at), &mut name).ok());
        own.is_some() && name == NAME && dynamic.has_versions()
    })
}

/// Returns whether a name for the dynamic linker has it look at `/proc/self/exe`: by that path, or for
/// `$ORIGIN`.
fn names_program(name: &[u8]) -> bool {
    name.contains(&b'$') || name.windows(4).any(|part| part == b"/exe")
}

/// Returns whether the dynamic linker may look for libraries by the place of the program, or if that is not
/// known. Then it asks for `/proc/self/exe`, which is the runtime's file.
#[inline(never)]
fn names_origin(file: u64, headers: Headers<'_>, bias: u64) -> bool {
    let is_plain = |at: u64| {
        let mut name = [0; 128];
        let length = user::read_text(at, &mut name);
        let end = name[..length].iter().position(|byte| *byte == 0);
        end.is_some_and(|end| !names_program(&name[..end]))
    };
    !with_dynamic(file, headers, bias, |dynamic, strings| {
        dynamic.expanded().all(|at| is_plain(strings.wrapping_add(at)))
    })
}

/// Returns an address for a program that may lie anywhere: where the kernel puts these.
fn hint() -> u64 {
    const FIRST: u64 = 0x5555_5555_4000;
    const PAGES: u64 = (1 << 28) - 1;
    const ADDR_NO_RANDOMIZE: u64 = 0x4_0000;
    const ASK: u64 = 0xffff_ffff;
    let mut random = 0_u64;
    let is_fixed = harmless!(nr::PERSONALITY, ASK).is_ok_and(|bits| bits & ADDR_NO_RANDOMIZE != 0);
    if !is_fixed {
        let _ = harmless!(nr::GETRANDOM, &raw mut random as u64, 8, 0);
    }
    FIRST + (random & PAGES) * pathreads::PAGE
}

/// Makes the stack executable, as the program asks.
fn make_executable(stack: u64) {
    const GROWSDOWN: u64 = 0x0100_0000;
    let protection = sys::PROT_READ | sys::PROT_WRITE | sys::PROT_EXEC | GROWSDOWN;
    // SAFETY: more is allowed than before.
    let _ = unsafe { sys::call(nr::MPROTECT, [page_start(stack), pathreads::PAGE, protection]) };
}

/// Makes the words that the program finds on its stack, of those that the kernel gave to the runtime.
/// Strings stay where they are. Returns the stack pointer.
#[inline(never)]
fn make_stack(start: Start, program: &Program, named: u64, loaded: &Loaded) -> u64 {
    let old_end = start.end();
    let most = old_end + program.count;
    let mut few = [0; WORDS];
    let words = match few.get_mut(..most) {
        Some(words) => words,
        None => {
            let memory = sys::map_zeroes(most as u64 * 8);
            let memory = memory.unwrap_or_else(|_| sys::fail(b"no memory for the arguments", 125));
            // SAFETY: the memory is new.
            unsafe { core::slice::from_raw_parts_mut(memory as *mut u64, most) }
        }
    };
    let replaced = usize::from(program.count > 0);
    let own = program.first + replaced..start.arguments();
    let mut at = 1;
    let mut push = |word: u64| {
        words[at] = word;
        at += 1;
    };
    program.inserted[..program.count].iter().for_each(|word| push(*word));
    own.clone().for_each(|index| push(start.argument(index)));
    push(0);
    (start.environment()..start.auxiliary()).for_each(|index| push(start.word(index)));
    for index in (start.auxiliary()..old_end).step_by(2) {
        let (kind, value) = (start.word(index), start.word(index + 1));
        push(kind);
        push(match kind {
            AT_PHDR => loaded.phdr,
            AT_PHENT => PHENT,
            AT_PHNUM => loaded.phnum,
            AT_BASE => loaded.base,
            AT_ENTRY => loaded.own_entry,
            AT_EXECFN => named,
            AT_SYSINFO_EHDR if !loaded.has_vdso => 0,
            _ => value,
        });
    }
    words[0] = (program.count + own.len()) as u64;
    // SAFETY: one past the last word that the kernel wrote.
    let end = unsafe { start.stack.add(old_end) } as u64;
    let stack = (end - at as u64 * 8) & !15;
    // SAFETY: the boot does not stand on this stack, and the words end before the strings.
    unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), stack as *mut u64, at) };
    if most > WORDS {
        // SAFETY: the words are not used any more.
        unsafe { sys::munmap(words.as_ptr() as u64, most as u64 * 8) };
    }
    stack
}

/// Copies what `/proc/self` shows of the program's arguments: Linux shows it of anonymous memory only.
fn keep_arguments(mut map: Map) -> Map {
    const FIRST: usize = 7;
    const END: usize = 10;
    let (first, length) = (map[FIRST], map[END] - map[FIRST]);
    if let Ok(copy) = sys::map_zeroes(length) {
        // SAFETY: the kernel made these strings, one after the other, and the copy is new.
        unsafe { core::ptr::copy_nonoverlapping(first as *const u8, copy as *mut u8, length as usize) };
        map[FIRST..=END].iter_mut().for_each(|at| *at = *at - first + copy);
    }
    map
}

/// Replaces the stack by the program's memory.
fn isolate_stack(stack: u64, top: u64, is_executable: bool) {
    let code = if is_executable { sys::PROT_EXEC } else { 0 };
    isolate::memory::replace_stack(stack, top, sys::PROT_READ | sys::PROT_WRITE | code);
}

/// The words of `struct prctl_mm_map`.
type Map = [u64; 13];

/// Returns where `/proc/self` should look for the program's arguments, or the runtime's if a script's
/// interpreter was put in front: then the program's are not in one piece.
fn arguments_map(start: Start, program: &Program) -> Map {
    let last = start.argument(start.arguments() - 1);
    let environment = |index: usize| start.word(start.environment() + index);
    let variables = start.auxiliary() - 1 - start.environment();
    let end = |at: u64| at + text(at).len() as u64 + 1;
    let arguments_end = end(last);
    let (first_variable, variables_end) = match variables {
        0 => (arguments_end, arguments_end),
        count => (environment(0), end(environment(count - 1))),
    };
    let first = start.argument(if program.count > 0 { 0 } else { program.first });
    let (text_start, text_end) = (pathreads::RUNTIME_BASE, entry::address(&entry::runtime_text_end));
    let stack = start.stack as u64;
    [
        text_start,
        text_end,
        text_start,
        text_end,
        0,
        0,
        stack,
        first,
        arguments_end,
        first_variable,
        variables_end,
        0,
        0,
    ]
}

/// Shows the program's arguments and auxiliary vector in `/proc/self`, where the kernel allows it.
fn describe(mut map: Map, new: Start) {
    const PR_SET_MM: u64 = 35;
    const PR_SET_MM_MAP: u64 = 14;
    /// The file of `/proc/self/exe` stays.
    const NO_FILE: u64 = 0xffff_ffff << 32;
    const HEAP: usize = 4;
    const AUXILIARY: usize = 11;
    let Ok(heap) = harmless!(nr::BRK, 0) else { return };
    map[HEAP..HEAP + 2].fill(heap);
    let (first, end) = (new.auxiliary(), new.end());
    map[AUXILIARY] = new.address(first);
    map[AUXILIARY + 1] = ((end - first) as u64 * 8) | NO_FILE;
    let _ = harmless!(nr::PRCTL, PR_SET_MM, PR_SET_MM_MAP, map.as_ptr() as u64, size_of_val(&map) as u64, 0);
}
