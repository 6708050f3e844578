//! The functions that QEMU calls. Each callback calls safe code at once.
//!
//! Until the program starts, the plugin looks for markers only, so that the guest boots as fast as without
//! it. RUN asks QEMU to translate everything again, at a moment when no CPU runs, and from then on every
//! block and access is seen. When the counts are complete, accesses are ignored. Callbacks are not removed
//! again: QEMU 7.2 frees them while a CPU that left a block by an exception may still hold their list, and
//! aborts when it next pushes an exception frame.

mod execute;
mod preload;
mod qemu;
mod translate;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::args::Options;
use crate::host;
use crate::meter::Meter;
use crate::output;
use crate::sites::Ram;
use qemu::*;
use translate::{on_early_translation, on_translation};

static METER: OnceLock<Meter> = OnceLock::new();

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
    // SAFETY: QEMU gives a good description.
    qemu::set_latest(unsafe { (*info).version_now });
    // SAFETY: as above, and `count` strings.
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

/// Creates the file now, so that a failure shows at once and not after an hour.
fn writable(out: &Path) -> Result<(), String> {
    std::fs::write(out, "").map_err(|error| format!("out={}: {error}", out.display()))
}

/// The plugin's name. Relaxed: written in `qemu_plugin_install`, before any callback.
static NAME: AtomicU64 = AtomicU64::new(0);

/// # Safety
/// In `qemu_plugin_install`.
unsafe fn watch_for_run(id: Id) {
    NAME.store(id, Relaxed);
    // SAFETY: the callbacks take the arguments that QEMU gives them.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_early_translation, ptr::null_mut());
        qemu_plugin_register_atexit_cb(id, on_exit, ptr::null_mut());
    }
}

/// Begins the run. All CPUs stand still, and all translations are dropped.
unsafe extern "C" fn on_fresh_start() {
    let id = NAME.load(Relaxed);
    let memory = meter().sites.as_ref().and_then(|_| host::guest_memory(meter().options.memory));
    meter().sites.iter().zip(memory).for_each(|(sites, memory)| sites.set_ram(Ram::new(memory)));
    meter().run();
    // SAFETY: as in `watch_for_run`, and a reset has dropped the callbacks from there.
    unsafe {
        qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation, ptr::null_mut());
        qemu_plugin_register_vcpu_idle_cb(id, on_idle, ptr::null_mut());
        qemu_plugin_register_atexit_cb(id, on_exit, ptr::null_mut());
    }
}

fn meter() -> &'static Meter {
    METER.get().expect("callbacks come after `qemu_plugin_install`")
}

unsafe extern "C" fn on_run(_cpu: u32, _data: *mut c_void) {
    // SAFETY: a reset is allowed on a CPU's thread.
    unsafe { qemu_plugin_reset(NAME.load(Relaxed), on_fresh_start, ptr::null_mut()) };
}

unsafe extern "C" fn on_idle(first: u64, second: u64) {
    // The upper half of a 32-bit argument is undefined.
    let cpu = argument(first, second) as u32;
    meter().idle(cpu as usize);
    preload::sleeps_next(cpu as usize);
}

unsafe extern "C" fn on_exit() {
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
