//! Random numbers: a seed gathered at boot, and generators that begin with it.

use chacha20::rand_core::{Rng, SeedableRng};
use chacha20::{ChaCha12Rng, ChaCha20Rng};

const KEY: usize = 32;

/// All hard-to-guess facts about a boot, in 256 bits.
#[derive(Clone)]
pub struct Seed([u8; KEY]);

impl Seed {
    /// Creates a seed that knows nothing.
    pub const fn new() -> Self {
        Self([0; KEY])
    }

    /// Stirs bytes in. The entropy gathered before is never lost, however little they add.
    pub fn stir(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(KEY - 1) {
            // The length distinguishes inputs that differ only in zeroes at the end.
            let (length, key) = self.0.split_first_mut().expect("a key has bytes");
            *length ^= chunk.len() as u8;
            key.iter_mut().zip(chunk).for_each(|(key, byte)| *key ^= byte);
            self.turn();
        }
    }

    /// Returns a generator of its own. No generator reveals anything about another, or about the seed.
    pub fn generator(&mut self) -> Generator {
        let mut stream = ChaCha20Rng::from_seed(self.0);
        let mut key = [0; KEY];
        stream.fill_bytes(&mut self.0);
        stream.fill_bytes(&mut key);
        Generator(ChaCha12Rng::from_seed(key))
    }

    /// Advances to a new key, from which the present one cannot be computed.
    fn turn(&mut self) {
        ChaCha20Rng::from_seed(self.0).fill_bytes(&mut self.0);
    }
}

impl Default for Seed {
    fn default() -> Self {
        Self::new()
    }
}

/// A source of random numbers, as good as the seed it comes from.
#[derive(Debug)]
pub struct Generator(ChaCha12Rng);

impl Generator {
    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// Returns 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }
}
