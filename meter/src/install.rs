//! What QEMU calls. Each callback hands over to safe code at once.
//!
//! Until the program starts, only markers are looked for, so that the guest boots as fast as without the plugin. RUN asks
//! QEMU to translate everything anew, at a moment when no CPU runs, and from then on every block and access is seen. When
//! counts are complete, accesses are passed over. Callbacks are not taken away again: QEMU 7.2 frees them while a CPU that left
//! a block by an exception may still hold their list, and stops itself when it next pushes an exception frame.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, OnceLock};

use crate::args::Options;
use crate::counts::Kind;
use crate::cpu::Privilege;
use crate::decode::{self, Marker, Special};
use crate::directory::parts;
use crate::host::{self, Timespec};
use crate::meter::{Meter, Touch};
use crate::output;
use crate::qemu::{self, *};

static METER: OnceLock<Meter> = OnceLock::new();

/// QEMU asks which interface the plugin is made for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is QEMU's")]
pub static qemu_plugin_version: c_int = qemu::VERSION;

/// QEMU has loaded the plugin.
///
/// # Safety
/// Called by QEMU, with its arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU gives a good description, and `count` strings.
    let made = unsafe { (*info).system_emulation.then(|| read_arguments(count, arguments)) }
        .ok_or_else(|| "made for whole machines".into())
        // SAFETY: a whole machine's description has its CPUs.
        .and_then(|arguments| make(&arguments, unsafe { (*info).max_cpus }));
    match made {
        Ok(meter) => {
            METER.get_or_init(|| meter);
            // SAFETY: called from `qemu_plugin_install`, with this plugin's name.
            unsafe { watch_for_run(id) };
            0
        }
        Err(message) => {
            eprintln!("radixvm-meter: {message}");
            1
        }
    }
}

/// # Safety
/// `arguments` are `count` strings.
unsafe fn read_arguments(count: c_int, arguments: *const *const c_char) -> Vec<String> {
    // SAFETY: the caller's promise.
    let text = |index| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_string_lossy().into_owned();
    (0..count as usize).map(text).collect()
}

fn make(arguments: &[String], cpus: c_int) -> Result<Meter, String> {
    let options = Options::parse(arguments.iter().map(String::as_str), cpus as usize)?;
    writable(&options.out)?;
    Meter::new(options).ok_or_else(|| "no room for the directory".into())
}

/// Found out now, not after an hour.
fn writable(out: &Path) -> Result<(), String> {
    std::fs::write(out, "").map_err(|error| format!("out={}: {error}", out.display()))
}

/// # Safety
/// In `qemu_plugin_install`.
unsafe fn watch_for_run(id: Id) {
    // SAFETY: the callbacks have the types that QEMU expects of them.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_early_translation);
        qemu_plugin_register_atexit_cb(id, on_exit, ptr::null_mut());
    }
}

/// All CPUs stand still, and all translations are gone.
unsafe extern "C" fn on_fresh_start(id: Id) {
    meter().run();
    // SAFETY: as in `watch_for_run`; a reset has dropped the callbacks from there.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
        qemu_plugin_register_vcpu_idle_cb(id, on_idle);
        qemu_plugin_register_atexit_cb(id, on_exit, ptr::null_mut());
    }
}

fn meter() -> &'static Meter {
    METER.get().expect("callbacks come after `qemu_plugin_install`")
}

unsafe extern "C" fn on_early_translation(id: Id, block: *mut Block) {
    // SAFETY: QEMU's block, good during the call.
    for (_, instruction) in unsafe { instructions(block) } {
        // SAFETY: an instruction of it.
        if decode::marker(unsafe { bytes(instruction) }) == Some(Marker::Run) {
            // SAFETY: as above; the plugin's name goes with the callback.
            unsafe { on_each(instruction, on_run, id) };
        }
    }
}

unsafe extern "C" fn on_run(_cpu: u32, id: *mut c_void) {
    // SAFETY: a reset is allowed on a CPU's thread.
    unsafe { qemu_plugin_reset(id as Id, on_fresh_start) };
}

unsafe extern "C" fn on_translation(_id: Id, block: *mut Block) {
    // SAFETY: QEMU's block, good during the call.
    let instructions: Vec<_> = unsafe { instructions(block) }.collect();
    let Some((first, _)) = instructions.first().copied() else { return };
    // SAFETY: instructions of that block.
    let specials: Vec<_> = instructions.iter().map(|(_, i)| decode::special(unsafe { bytes(*i) })).collect();
    let repeats = specials[0] == Some(Special::Repeat);
    // SAFETY: as above.
    unsafe {
        qemu_plugin_register_vcpu_tb_exec_cb(
            block,
            on_block,
            NO_REGISTERS,
            Run::pack(first, instructions.len(), repeats),
        )
    };
    for (index, (pc, instruction)) in instructions.iter().copied().enumerate() {
        // SAFETY: as above; the address goes with the callback.
        unsafe {
            qemu_plugin_register_vcpu_mem_cb(
                instruction,
                on_access,
                NO_REGISTERS,
                LOADS_AND_STORES,
                pc as *mut c_void,
            )
        };
        let ahead = instructions.len() - 1 - index;
        // SAFETY: as above.
        specials[index].iter().for_each(|special| unsafe { on_special(instruction, *special, pc, ahead) });
        let kinds = meter().options.events.iter().filter(|(address, _)| *address == pc);
        // SAFETY: as above.
        kinds.for_each(|(_, kind)| unsafe { on_each(instruction, on_event, Event::pack(*kind, pc)) });
    }
}

/// # Safety
/// `instruction` is of the block that is being translated.
unsafe fn on_special(instruction: *mut Instruction, special: Special, pc: u64, ahead: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match special {
            Special::Marker(marker) => {
                if matches!(marker, Marker::Begin(_)) {
                    meter().begins_at(pc);
                }
                on_each(instruction, on_marker, Mark::pack(marker, pc, ahead));
            }
            Special::Repeat => on_each(instruction, on_repeat, pc),
            Special::Port => on_each(instruction, on_event, Event::pack(Kind::Io, pc)),
            Special::Invlpg => on_each(instruction, on_event, Event::pack(Kind::Invlpg, pc)),
            Special::Cr3Load => on_each(instruction, on_event, Event::pack(Kind::Cr3Loads, pc)),
        }
    }
}

/// # Safety
/// `instruction` is of the block that is being translated.
unsafe fn on_each(instruction: *mut Instruction, callback: OnExecution, data: u64) {
    // SAFETY: the caller's promise; the data are a number, not an address.
    unsafe {
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, callback, NO_REGISTERS, data as *mut c_void)
    };
}

/// # Safety
/// `block` is being translated.
unsafe fn instructions(block: *mut Block) -> impl Iterator<Item = (u64, *mut Instruction)> {
    // SAFETY: the caller's promise; indices below the number are good.
    let instruction = move |index| unsafe { qemu_plugin_tb_get_insn(block, index) };
    // SAFETY: as above.
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    // SAFETY: as above.
    (0..count)
        .map(instruction)
        .map(|instruction| (unsafe { qemu_plugin_insn_vaddr(instruction) }, instruction))
}

/// # Safety
/// `instruction` is of the block that is being translated; the bytes are good as long.
unsafe fn bytes<'a>(instruction: *mut Instruction) -> &'a [u8] {
    // SAFETY: QEMU keeps that many bytes until the translation is done.
    unsafe {
        std::slice::from_raw_parts(
            qemu_plugin_insn_data(instruction).cast(),
            qemu_plugin_insn_size(instruction),
        )
    }
}

/// What goes with a block's callback: its address, whether it repeats, and its number of instructions above that.
struct Run;

impl Run {
    const REPEATS: u64 = 1 << 63;

    fn pack(pc: u64, instructions: usize, repeats: bool) -> *mut c_void {
        let kernel = u64::from(Privilege::of(pc) == Privilege::Kernel);
        ((instructions as u64) << 1 | kernel | if repeats { Self::REPEATS } else { 0 }) as *mut c_void
    }
}

unsafe extern "C" fn on_block(cpu: u32, data: *mut c_void) {
    let word = data as u64;
    let instructions = (word & !Run::REPEATS) >> 1;
    meter().block(cpu as usize, privilege(word), instructions, word & Run::REPEATS != 0);
}

/// From bit 0 of a callback's data.
fn privilege(word: u64) -> Privilege {
    if word & 1 == 0 { Privilege::User } else { Privilege::Kernel }
}

/// What goes with a counted instruction.
struct Event;

impl Event {
    fn pack(kind: Kind, pc: u64) -> u64 {
        (kind as u64) << 1 | u64::from(Privilege::of(pc) == Privilege::Kernel)
    }
}

unsafe extern "C" fn on_event(cpu: u32, data: *mut c_void) {
    let word = data as u64;
    let kind = crate::counts::KINDS[(word >> 1) as usize];
    meter().cpus[cpu as usize].counts(privilege(word)).add(kind, 1);
}

/// What goes with a marker.
struct Mark;

impl Mark {
    fn pack(marker: Marker, pc: u64, ahead: usize) -> u64 {
        let (op, arg) = marker.parts();
        (ahead as u64) << 24 | u64::from(op) << 16 | u64::from(arg) << 8 | Event::pack(Kind::Instructions, pc)
    }
}

unsafe extern "C" fn on_marker(cpu: u32, data: *mut c_void) {
    let word = data as u64;
    let marker = Marker::from_parts((word >> 16) as u8, (word >> 8) as u8).expect("packed from one");
    if meter().marker(cpu as usize, marker, privilege(word), word >> 24) {
        // Early, so that whoever wants no more than counts can end QEMU; and again in the end.
        write(meter());
    }
}

unsafe extern "C" fn on_repeat(cpu: u32, pc: *mut c_void) {
    meter().cpus[cpu as usize].repeat(pc as u64);
}

unsafe extern "C" fn on_access(cpu: u32, info: MemoryInfo, address: u64, pc: *mut c_void) {
    let (meter, cpu, pc) = (meter(), cpu as usize, pc as u64);
    if !meter.is_live() {
        return;
    }
    // SAFETY: in a memory callback, with its own `info`.
    let (store, size) = unsafe { (qemu_plugin_mem_is_store(info), 1 << qemu_plugin_mem_size_shift(info)) };
    meter.count_access(cpu, store, pc);
    for (offset, bytes) in parts(address, size) {
        // SAFETY: as above; the second part of an access is as accessible as the first.
        match unsafe { place(info, address + offset) } {
            Some(Place::Memory(physical)) => {
                meter.touch(cpu, &Touch { physical, address: address + offset, bytes, store, pc });
            }
            Some(Place::Device(physical)) => meter.device(cpu, physical, store, pc),
            None => {}
        }
    }
}

enum Place {
    Memory(u64),
    Device(u64),
}

/// # Safety
/// In a memory callback with that `info`.
unsafe fn place(info: MemoryInfo, address: u64) -> Option<Place> {
    // SAFETY: the caller's promise; the handle is used before the callback returns.
    unsafe {
        let hardware = qemu_plugin_get_hwaddr(info, address);
        if hardware.is_null() {
            return None;
        }
        let physical = qemu_plugin_hwaddr_phys_addr(hardware);
        Some(if qemu_plugin_hwaddr_is_io(hardware) {
            Place::Device(physical)
        } else {
            Place::Memory(physical)
        })
    }
}

unsafe extern "C" fn on_idle(_id: Id, cpu: u32) {
    meter().idle(cpu as usize);
}

unsafe extern "C" fn on_exit(_id: Id, _data: *mut c_void) {
    let meter = meter();
    meter.stop();
    write(meter);
}

fn write(meter: &Meter) {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _turn = ONE_BY_ONE.lock();
    if let Err(error) = output::write(meter) {
        eprintln!("radixvm-meter: {}: {error}", meter.options.out.display());
    }
}

/// Stands in front of the C library's where this library is preloaded: QEMU's timers follow it.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, into: *mut Timespec) -> c_int {
    let virtual_time = || METER.get().filter(|_| clock == host::MONOTONIC)?.time();
    match virtual_time() {
        Some(time) => {
            // SAFETY: the caller's promise.
            unsafe { into.write(Timespec::from_nanoseconds(time)) };
            0
        }
        // SAFETY: as above.
        None => unsafe { host::real_clock(clock, into) },
    }
}
