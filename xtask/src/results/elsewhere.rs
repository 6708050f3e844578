//! Measures on a machine with more processors that has neither Rust nor the checkout.
//!
//! `cargo xtask results --pack FOLDER` fills a folder with the programs and a script, `measure`, which writes
//! `FOLDER/results` on the other machine. `cargo xtask results --unpack FOLDER` makes the pages of that.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::machine::{DESCRIBE, Machine};
use super::{Outcome, PARTS, Part, Run, counted, machine, output, publish, timed, with_json};
use crate::root;
use crate::shell::cargo;

/// The kernel as `radixvm install` places it, and as the commands name it.
const KERNEL: [&str; 2] =
    ["lib/radixvm/artifacts/kernel", "target/x86_64-unknown-none/release/radixvm-kernel"];

fn parts() -> impl Iterator<Item = &'static Part> {
    PARTS.iter().filter(|part| part.is_of_host())
}

/// Returns the name of a run's results, without an ending.
fn name(part: &Part, at: usize) -> String {
    format!("results/{}.{at}", part.name)
}

/// Fills `folder`, which must not be there yet.
pub fn pack(folder: &Path) -> Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    output(Command::new("./radixvm").args(["install", "--prefix"]).arg(std::path::absolute(folder)?))?;
    copy(&folder.join(KERNEL[0]), &folder.join(KERNEL[1]))?;
    copy(&root().join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    let script = folder.join("measure");
    fs::write(&script, measure(folder)?)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    println!("run {} on the other machine, and bring the folder back", script.display());
    Ok(())
}

/// Returns the script, and copies the benchmarks that it calls.
fn measure(folder: &Path) -> Result<String> {
    let mut script = format!(
        "#!/bin/sh -e\n# Measures this machine.\ncd \"$(dirname \"$0\")\"\nmkdir -p results\n\
         {{ echo 'commit : {}'; {DESCRIBE}; }} > results/machine\n",
        machine::commit()?
    );
    for part in parts() {
        for (at, run) in part.runs.iter().enumerate() {
            let name = name(part, at);
            match run {
                Run::Native(words) => {
                    let programs = benchmarks(words, folder)?;
                    let programs =
                        programs.iter().map(|program| format!("./{program} --bench")).collect::<Vec<_>>();
                    writeln!(script, "{{ {}; }} > {name}.text", programs.join("; "))?;
                }
                Run::Host(words) => {
                    writeln!(
                        script,
                        "bin/radixvm {} > {name}.text",
                        with_json(words, &format!("{name}.json"))
                    )?;
                }
                Run::Radixvm(_) | Run::Pictured(_) => bail!("{name} needs guests"),
            }
        }
    }
    Ok(script)
}

/// Builds and copies the benchmarks of `cargo bench WORDS`. Returns their names in the folder.
fn benchmarks(words: &str, folder: &Path) -> Result<Vec<String>> {
    let text = output(cargo("bench --quiet --no-run --message-format=json").args(words.split(' ')))?;
    let messages = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    let mut programs: Vec<PathBuf> = messages
        .iter()
        .filter(|message| message["target"]["kind"][0] == "bench")
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .collect();
    programs.sort();
    ensure!(!programs.is_empty(), "cargo bench {words} has no benchmark");
    let copied = programs.iter().map(|program| {
        let name = format!("benches/{}", program.file_name().context("a file")?.to_string_lossy());
        copy(program, &folder.join(&name))?;
        Ok(name)
    });
    copied.collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Makes the pages of what `measure` wrote. It may have been stopped before all parts were done.
pub fn unpack(folder: &Path) -> Result<()> {
    let description = read(folder, "results/machine")?;
    let commit = machine::field(&description, "commit").context("results/machine names no commit")?;
    let machine = Machine::of_host(commit, &description)?;
    for part in parts() {
        if !is_done(folder, part) {
            println!("{} was not measured: its page stays", part.name);
            continue;
        }
        let outcomes = part.runs.iter().enumerate().map(|(at, run)| outcome(folder, &name(part, at), run));
        publish(part, &machine, &outcomes.collect::<Result<Vec<_>>>()?)?;
    }
    Ok(())
}

/// Returns whether there are results of all runs of a part. A run that was stopped has written nothing.
fn is_done(folder: &Path, part: &Part) -> bool {
    let is_there = |at| {
        let text = folder.join(name(part, at) + ".text");
        fs::metadata(text).is_ok_and(|about| about.len() > 0)
    };
    (0..part.runs.len()).all(is_there)
}

fn outcome(folder: &Path, name: &str, run: &Run) -> Result<Outcome> {
    let text = read(folder, &format!("{name}.text"))?;
    match run {
        Run::Native(words) => Ok(timed(words, text)),
        Run::Host(words) => counted(words, text, &read(folder, &format!("{name}.json"))?),
        Run::Radixvm(_) | Run::Pictured(_) => bail!("{name} needs guests"),
    }
}

fn read(folder: &Path, name: &str) -> Result<String> {
    let file = folder.join(name);
    fs::read_to_string(&file).with_context(|| format!("cannot read {}: has measure run?", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("results")).unwrap();
        write("results/pool.0.text", "text\n");
        write("results/pool.0.json", "[{\"x\": 1}]");
        let back = outcome(folder.path(), "results/pool.0", &Run::Host("bench native")).unwrap();
        assert_eq!(
            (back.command.as_str(), back.text.as_str(), back.rows.len()),
            ("./radixvm bench native", "text\n", 1)
        );
        let missing = outcome(folder.path(), "results/pool.1", &Run::Host("x")).err().unwrap();
        assert!(missing.to_string().contains("pool.1.text: has measure run?"), "{missing}");
    }

    #[test]
    fn a_part_is_done_when_all_its_runs_are() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("results")).unwrap();
        let part = parts().find(|part| part.runs.len() == 3).expect("a part has three runs");
        for at in 0..3 {
            assert!(!is_done(folder.path(), part));
            let text = if at == 1 { "" } else { "text" };
            fs::write(folder.path().join(name(part, at) + ".text"), text).unwrap();
        }
        assert!(!is_done(folder.path(), part));
        fs::write(folder.path().join(name(part, 1) + ".text"), "text").unwrap();
        assert!(is_done(folder.path(), part));
    }

    #[test]
    fn the_parts_of_the_host_are_measured_elsewhere() {
        assert_eq!(
            parts().map(|part| part.name).collect::<Vec<_>>(),
            ["pool", "workloads", "malloc", "native", "baselines"]
        );
    }
}
