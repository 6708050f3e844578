//! Seeds and generators.

use std::collections::BTreeSet;

use firmware::Seed;

fn first(seed: &mut Seed) -> [u64; 4] {
    let mut generator = seed.generator();
    [(); 4].map(|()| generator.word())
}

fn stirred(parts: &[&[u8]]) -> [u64; 4] {
    let mut seed = Seed::new();
    parts.iter().for_each(|part| seed.stir(part));
    first(&mut seed)
}

#[test]
fn all_that_is_stirred_in_counts() {
    let many = [7; 100];
    let mut last = many;
    last[99] = 8;
    let seeds: [&[&[u8]]; 10] = [
        &[],
        &[b"a"],
        &[b"b"],
        &[b"a", b"b"],
        &[b"b", b"a"],
        &[b"ab"],
        &[b"a\0"],
        &[b"a", b"\0"],
        &[&many],
        &[&last],
    ];
    let found: BTreeSet<_> = seeds.iter().map(|parts| stirred(parts)).collect();
    assert_eq!(found.len(), seeds.len());
    assert_eq!(stirred(&[b"a", b"b"]), stirred(&[b"a", b"b"]));
}

#[test]
fn generators_differ_and_are_not_what_remains() {
    let mut seed = Seed::new();
    seed.stir(b"boot");
    let mut found: BTreeSet<_> = (0..256).flat_map(|_| first(&mut seed)).collect();
    assert_eq!(found.len(), 1024);
    let before = seed.clone();
    let _one = seed.generator();
    assert!(first(&mut seed).iter().all(|number| found.insert(*number)));
    assert!(first(&mut before.clone()).iter().all(|number| found.insert(*number)));
}

#[test]
fn half_of_all_bits_are_set() {
    let (mut generator, mut bytes) = (Seed::new().generator(), [0; 64 << 10]);
    generator.fill(&mut bytes);
    let ones: u32 = bytes.iter().map(|byte| byte.count_ones()).sum();
    assert!(ones.abs_diff(256 << 10) < 2048, "{ones}");
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    assert!(counts.iter().all(|count| (128..=400).contains(count)), "{counts:?}");
}
