//! The pipeline: five stages, and the threads that serve them.
//!
//! ```text
//!            thread 0          all threads             thread 0          all threads             thread 0
//! input ──▶ 0 cut a block ──▶ 1 cut and name chunks ─▶ 2 find repeats ─▶ 3 pack the new ones ──▶ 4 write ──▶ archive
//!           maps its buffer                                              maps the packed one's   unmaps both
//! ```
//! Stages 0, 2 and 4 must see the blocks in order. That makes the archive the same with any number of
//! threads.

use crate::archive::{self, Chunk};
use crate::chunk::{Limits, cut, cuts};
use crate::ring::Ring;
use miniz_oxide::DataFormat;
use miniz_oxide::deflate::core::{CompressorOxide, TDEFLFlush, TDEFLStatus, compress};
use programs::buffer::Buffer;
use programs::marker;
use programs::spin::Spin;
use programs::window::{Window, measure};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;

const CUT: usize = 0;
const NAME: usize = 1;
const MATCH: usize = 2;
const PACK: usize = 3;
const WRITE: usize = 4;

/// Limits of chunks, as in PARSEC's dedup.
const CHUNKS: Limits = Limits { least: 1 << 10, mean: 4 << 10, most: 32 << 10 };
/// The fastest level of compression.
const LEVEL: u8 = 1;
/// Number of blocks in the pipeline for each thread.
const PLACES: usize = 4;

type Name = [u8; 32];
/// Numbers of the chunks in the archive. Nothing is random, since names are hashes already and every run must
/// take the same steps.
type Known = HashMap<Name, u64, BuildHasherDefault<DefaultHasher>>;

/// A block in the pipeline.
#[derive(Default)]
struct Block {
    /// Its bytes, and from stage 3 on those of the new chunks.
    bytes: Buffer,
    chunks: Vec<(Range<usize>, Name)>,
    /// Its chunks, as the archive has them.
    found: Vec<Chunk>,
    /// The packed new chunks. Empty if packing would not make them shorter.
    packed: Buffer,
}

/// The result of a run.
#[derive(Default)]
pub struct Packed {
    /// The archive.
    pub archive: Vec<u8>,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of chunks.
    pub chunks: usize,
    /// Number of chunks that were new.
    pub new: usize,
    /// Number of buffers that were mapped and unmapped.
    pub buffers: u64,
}

/// The state of one thread. The first thread has all state that must be in order.
struct Hand<'a> {
    input: &'a [u8],
    limits: Limits,
    ring: &'a Ring<Block>,
    /// Start of the next block.
    next: usize,
    known: Known,
    packer: CompressorOxide,
    packed: Packed,
}

/// Packs the input on `threads` threads, in blocks of about `block` bytes.
pub fn pack(input: &[u8], threads: usize, block: usize) -> (Packed, Window) {
    let ring = &Ring::new(PLACES * threads);
    let (mut packed, window) = measure(threads, |worker| {
        let mut hand = Hand::new(input, block, ring);
        hand.serve(stages(worker.index), worker.crowded);
        hand.packed
    });
    (packed.swap_remove(0), window)
}

/// Returns the stages that a thread serves. Stages that others wait for come first.
fn stages(index: usize) -> &'static [usize] {
    if index == 0 { &[WRITE, MATCH, CUT, PACK, NAME] } else { &[PACK, NAME] }
}

impl<'a> Hand<'a> {
    fn new(input: &'a [u8], block: usize, ring: &'a Ring<Block>) -> Hand<'a> {
        let mut packer = CompressorOxide::default();
        packer.set_format_and_level(DataFormat::Raw, LEVEL);
        let limits = Limits { least: block / 2, mean: block / 2, most: 2 * block };
        Hand { input, limits, ring, next: 0, known: Known::default(), packer, packed: Packed::default() }
    }

    /// Serves the first of these stages that is ready, until all are finished.
    fn serve(&mut self, stages: &[usize], crowded: bool) {
        let mut spin = Spin::new(crowded);
        if stages.contains(&WRITE) {
            archive::begin(&mut self.packed.archive, self.input.len());
        }
        while !stages.iter().all(|stage| self.ring.finished(*stage)) {
            if !stages.iter().any(|stage| self.step(*stage)) {
                spin.turn();
            }
        }
    }

    /// Moves one block through one stage, which is a round for the meter. Returns whether one was ready.
    fn step(&mut self, stage: usize) -> bool {
        let ring = self.ring;
        if stage == CUT && self.next == self.input.len() {
            if !ring.finished(CUT) {
                ring.end();
            }
            return false;
        }
        ring.step(stage, |block| {
            marker::phase(stage + 1);
            match stage {
                CUT => self.cut(block),
                NAME => name(block),
                MATCH => self.find(block),
                PACK => self.pack(block),
                _ => self.write(block),
            }
            marker::phase(0);
            marker::iter();
        })
    }

    fn cut(&mut self, block: &mut Block) {
        let rest = &self.input[self.next..];
        let length = cut(rest, self.limits);
        block.bytes = Buffer::new(length);
        block.bytes.copy_from_slice(&rest[..length]);
        self.next += length;
    }

    fn find(&mut self, block: &mut Block) {
        block.found.clear();
        for (range, name) in &block.chunks {
            let next = self.known.len() as u64;
            let number = *self.known.entry(*name).or_insert(next);
            block.found.push(if number == next { Chunk::New(range.len()) } else { Chunk::Known(number) });
        }
    }

    fn pack(&mut self, block: &mut Block) {
        keep_new(block);
        block.packed = Buffer::new(block.bytes.len());
        self.packer.reset();
        let (status, _, length) =
            compress(&mut self.packer, &block.bytes, &mut block.packed, TDEFLFlush::Finish);
        let shorter = status == TDEFLStatus::Done && length < block.bytes.len();
        block.packed.truncate(if shorter { length } else { 0 });
    }

    fn write(&mut self, block: &mut Block) {
        let (bytes, packed) = (std::mem::take(&mut block.bytes), std::mem::take(&mut block.packed));
        let stored = if packed.is_empty() { &bytes } else { &packed };
        archive::add(&mut self.packed.archive, block.found.iter().copied(), bytes.len(), stored);
        self.packed.blocks += 1;
        self.packed.buffers += 2;
        self.packed.chunks += block.found.len();
        self.packed.new += block.found.iter().filter(|chunk| matches!(chunk, Chunk::New(_))).count();
    }
}

fn name(block: &mut Block) {
    block.chunks.clear();
    for range in cuts(&block.bytes, CHUNKS) {
        let name = Sha256::digest(&block.bytes[range.clone()]).into();
        block.chunks.push((range, name));
    }
}

/// Moves the new chunks of a block together, and forgets the others.
fn keep_new(block: &mut Block) {
    let mut length = 0;
    for ((range, _), found) in block.chunks.iter().zip(&block.found) {
        if let Chunk::New(new) = found {
            block.bytes.copy_within(range.clone(), length);
            length += new;
        }
    }
    block.bytes.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use archive::restore;
    use programs::random::Random;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const BLOCK: usize = 16 << 10;

    /// Returns stretches of noise, each named by its seed, one after the other.
    fn input(stretches: &[(u64, usize)]) -> Vec<u8> {
        let stretch = |&(seed, length): &(u64, usize)| {
            let mut random = Random::new(seed);
            std::iter::repeat_with(move || random.bits() as u8).take(length)
        };
        stretches.iter().flat_map(stretch).collect()
    }

    #[test]
    fn repeated_blocks_are_kept_once() {
        let once = input(&[(1, 200_000)]);
        let (alone, _) = pack(&once, 2, BLOCK);
        let (packed, _) = pack(&once.repeat(5), 2, BLOCK);
        assert!(packed.archive.len() < alone.archive.len() * 3 / 2, "{} bytes", packed.archive.len());
        assert!(packed.new < alone.new + 20 && packed.chunks > 4 * alone.chunks);
        assert_eq!(restore(&packed.archive).unwrap(), once.repeat(5));
    }

    #[test]
    fn text_gets_shorter_and_noise_hardly_longer() {
        let text = include_bytes!("pipeline.rs");
        assert!(pack(text, 1, BLOCK).0.archive.len() < text.len() / 2);
        let noise = input(&[(3, 100_000)]);
        assert!(pack(&noise, 1, BLOCK).0.archive.len() < noise.len() + noise.len() / 50);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The result is equal bit for bit, and the archive is the same for any number of threads.
        #[test]
        fn packed_data_is_restored(stretches in vec((0..4_u64, 0..60_000_usize), 0..8), threads in 2..6_usize) {
            let input = input(&stretches);
            let (packed, _) = pack(&input, threads, BLOCK);
            prop_assert!(restore(&packed.archive) == Ok(input.clone()));
            prop_assert!(packed.archive == pack(&input, 1, BLOCK).0.archive);
        }
    }
}
