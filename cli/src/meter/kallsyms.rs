//! The stock kernel's symbols, from its own `/proc/kallsyms`, which is read once in a guest and stored in the
//! cache. The addresses are valid for every later boot, because they are not randomised (`nokaslr`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::names::KERNEL_HALF;
use crate::artifacts;
use crate::guest::channels::Sink;
use crate::guest::linux::{self, Kernel};
use crate::guest::qemu::Accel;
use crate::guest::session::{self, End};
use crate::guest::system::{self, Job, Size, Streams, System};
use crate::place;
use crate::program::Program;
use crate::progress::Step;

/// Every kernel has more symbols.
const FEW: usize = 1000;

/// Symbols by address and by name.
#[derive(Debug, Default)]
pub struct Kallsyms {
    by_address: Vec<(u64, String)>,
    by_name: BTreeMap<String, u64>,
    /// The offsets of per-CPU data.
    per_cpu: Vec<(u64, String)>,
}

impl Kallsyms {
    /// Returns the symbols of the stock kernel.
    pub fn load() -> Result<Self> {
        let name = cached(linux::kernel()?)?;
        let kept = place::caches().into_iter().find_map(|cache| fs::read_to_string(cache.join(&name)).ok());
        if let Some(text) = kept {
            return Kallsyms::parse(&text);
        }
        let text = ask().context("cannot read the stock kernel's symbols")?;
        let symbols = Kallsyms::parse(&text)?;
        // If nothing can be stored, the next command reads them again.
        let file = place::cache().join(name);
        let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
        let _ = folder.and_then(|()| fs::write(file, text));
        Ok(symbols)
    }

    /// Parses lines of `address type name [module]`. Low absolute symbols are offsets of per-CPU data, not
    /// addresses.
    pub fn parse(text: &str) -> Result<Self> {
        let symbols = || text.lines().filter_map(symbol);
        let mut by_address: Vec<(u64, String)> = symbols().filter(|symbol| symbol.0 > KERNEL_HALF).collect();
        ensure!(by_address.len() > FEW, "the kernel hides its symbols");
        by_address.sort();
        let mut per_cpu: Vec<(u64, String)> = symbols().filter(|symbol| symbol.0 < KERNEL_HALF).collect();
        per_cpu.sort();
        let by_name = by_address.iter().rev().map(|(address, name)| (name.clone(), *address)).collect();
        Ok(Kallsyms { by_address, by_name, per_cpu })
    }

    /// Returns the nearest symbol below an address, as `name+offset`.
    pub fn describe(&self, address: u64) -> Option<String> {
        nearest(&self.by_address, address)
    }

    /// Does the same for an offset of per-CPU data. Returns `None` past its end.
    pub fn per_cpu(&self, offset: u64) -> Option<String> {
        let (end, _) = self.per_cpu.last()?;
        nearest(&self.per_cpu, offset).filter(|_| offset < *end)
    }

    /// Returns the address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }
}

fn nearest(sorted: &[(u64, String)], address: u64) -> Option<String> {
    let next = sorted.partition_point(|(start, _)| *start <= address);
    let (start, name) = sorted.get(next.checked_sub(1)?)?;
    Some(format!("{name}+{:#x}", address - start))
}

fn symbol(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let absolute = words.next()?.eq_ignore_ascii_case("a");
    (absolute == (address < KERNEL_HALF)).then_some((address, words.next()?.to_owned()))
}

/// Returns the path of a kernel's symbols in the cache. It has the version and a hash of the content, because
/// distributions build a version more than once.
fn cached(kernel: &Kernel) -> Result<PathBuf> {
    let content = fs::read(&kernel.path).with_context(|| kernel.path.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&content);
    Ok(format!("linux/kallsyms-{}-{:016x}", kernel.version, hasher.finish()).into())
}

/// Boots a guest that prints its symbols.
fn ask() -> Result<String> {
    let _step = Step::new("reading the stock kernel's symbols");
    let program = Program::load(&artifacts::program("show")?)?;
    let job = Job::new(program, [OsString::from("/proc/kallsyms")]);
    let (stdout, stderr) = (Sink::buffer(), Sink::buffer());
    let streams = Streams { stdout: stdout.clone(), stderr: stderr.clone(), stdin: false };
    let size = Size { cpus: 1, memory: 512 << 20, accel: Accel::Tcg };
    let outcome = session::run_unwatched(system::plan(System::Linux, &job, size, streams)?)?;
    match outcome.end {
        End::Exited(0) => Ok(String::from_utf8_lossy(&stdout.take()).into_owned()),
        end => bail!("{end:?}: {}", String::from_utf8_lossy(&stderr.take()).trim()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a kernel with a thousand functions of 16 bytes and a variable.
    pub fn kernel() -> Kallsyms {
        let function = |i: u64| format!("{:016x} T function_{i}\n", 0xffff_ffff_8100_0000 + 16 * i);
        let mut text: String = (0..1001).map(function).collect();
        text += "ffffffff82000000 D jiffies\n0000000000001000 A cpu_number\n0000000000002000 A __per_cpu_end\nffffffffa0000000 t init\t[module]\n";
        Kallsyms::parse(&text).unwrap()
    }

    #[test]
    fn the_nearest_symbol_below_names_an_address() {
        let kernel = kernel();
        assert_eq!(kernel.describe(0xffff_ffff_8100_0015).as_deref(), Some("function_1+0x5"));
        assert_eq!(kernel.describe(0xffff_ffff_8200_0040).as_deref(), Some("jiffies+0x40"));
        assert_eq!(kernel.describe(0x1000), None);
        assert_eq!(kernel.address("jiffies"), Some(0xffff_ffff_8200_0000));
        assert_eq!(kernel.address("cpu_number"), None);
        assert_eq!(kernel.per_cpu(0x1010).as_deref(), Some("cpu_number+0x10"));
        assert_eq!(kernel.per_cpu(0x2000), None);
    }

    #[test]
    fn hidden_symbols_are_refused() {
        let text = "0000000000000000 T start\n".repeat(5000);
        assert!(Kallsyms::parse(&text).unwrap_err().to_string().contains("hides"));
    }

    #[test]
    fn symbols_are_kept_by_version_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = Kernel { path: folder.path().join("k"), version: "6.1.0-5".to_owned() };
        let name = |content: &str| {
            fs::write(&kernel.path, content).unwrap();
            cached(&kernel).unwrap().display().to_string()
        };
        assert!(name("one").starts_with("linux/kallsyms-6.1.0-5-"));
        assert_ne!(name("one"), name("two"));
    }
}
