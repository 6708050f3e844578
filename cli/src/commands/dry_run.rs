//! `radixvm run --dry-run`: prints the QEMU command for the user to run.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use launch::guest::qemu::{Boot, Port, Qemu};
use launch::guest::session::Plan;
use launch::{leftovers, place};

/// The prefix of the names of all images.
const PREFIX: &str = "dry-run-";
/// The number of images that are kept, this one included.
const KEPT: usize = 16;

/// Returns the command with the image in a file and the ports where the user can see them.
pub fn shell_line(plan: &Plan) -> Result<String> {
    let files = Files::keep(&place::cache(), &plan.image).context("no place for the image")?;
    leftovers::prune(&place::cache(), PREFIX, KEPT);
    let disk =
        plan.disk.as_ref().map(|disk| files.keep_disk(disk)).transpose().context("no place for the disk")?;
    let mut ports = vec![Port::Stdio, Port::File(files.control), Port::Appended("/dev/stderr".into())];
    ports.extend(plan.kernel_log.then_some(Port::File(files.log)));
    let boot =
        Boot { kernel: plan.kernel.clone(), initrd: files.image, command_line: plan.command_line.clone() };
    let Plan { machine, host_files, .. } = *plan;
    let (mounts, network) = (plan.mounts.clone(), plan.network.clone());
    let shared_memory = false;
    Ok(Qemu { machine, shared_memory, boot, disk, host_files, mounts, network, ports, plugin: None }
        .shell_line())
}

/// The files of one image, all named after its content, so that another dry run does not change them.
struct Files {
    image: PathBuf,
    control: PathBuf,
    log: PathBuf,
}

impl Files {
    /// Writes the image to a file.
    fn keep(folder: &Path, image: &[u8]) -> std::io::Result<Self> {
        let name = name(image);
        let place = |end: &str| folder.join(format!("{name}.{end}"));
        let files = Files { image: place("cpio"), control: place("control"), log: place("log") };
        fs::create_dir_all(folder)?;
        // Renamed into place, so that a guest that boots from the same image at this moment keeps it whole.
        let mut half = NamedTempFile::new_in(folder)?;
        half.write_all(image)?;
        half.persist(&files.image)?;
        Ok(files)
    }

    /// Copies the disk beside the image.
    fn keep_disk(&self, mut disk: &File) -> std::io::Result<PathBuf> {
        let path = self.image.with_extension("disk");
        std::io::copy(&mut disk, &mut File::create(&path)?)?;
        Ok(path)
    }
}

fn name(image: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(image);
    format!("{PREFIX}{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_images_lie_side_by_side() {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path();
        let (one, two) = (Files::keep(folder, b"one").unwrap(), Files::keep(folder, b"two").unwrap());
        assert_eq!(fs::read(&one.image).unwrap(), b"one");
        assert_eq!(fs::read(&two.image).unwrap(), b"two");
        assert_ne!(one.control, two.control);
        assert_eq!(Files::keep(folder, b"one").unwrap().image, one.image);
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
    }
}
