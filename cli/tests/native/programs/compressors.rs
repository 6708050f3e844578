//! Programs that compress and sort with several threads.

use super::compare;

#[test]
fn sort() {
    compare("sort", "sort --parallel=3 -S 1M -n sample | cksum");
}

#[test]
fn xz() {
    compare("xz", "xz -T3 --block-size=100KiB -c sample > packed; xz -T3 -dc packed | cksum");
}

#[test]
fn zstd() {
    compare("zstd", "zstd -T3 -19 -qc sample | zstd -dqc | cksum");
}

#[test]
fn pigz() {
    compare("pigz", "pigz -p 3 -c sample | pigz -dc | cksum");
}

#[test]
fn seven_zip() {
    compare("7z", "7z a -mmt=3 packed.7z sample > list; 7z x -so packed.7z | cksum; rm packed.7z");
}

#[test]
fn lbzip2() {
    compare("lbzip2", "lbzip2 -n 3 -c sample | lbzip2 -dc | cksum");
}

#[test]
fn pbzip2() {
    compare("pbzip2", "pbzip2 -p3 -b1 -c sample > packed; cksum < packed; pbzip2 -p3 -dc packed | cksum");
}
