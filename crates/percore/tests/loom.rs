//! Loom's threads play cores: `RUSTFLAGS="--cfg loom" cargo test -p radixvm-percore --features threads --test loom`.
#![cfg(all(loom, feature = "threads"))]

use loom::sync::Arc;
use loom::thread;
use percore::{CoreId, LazyPerCore, OwnerCell, PerCore, pin, threads};

fn add_one(cells: &PerCore<OwnerCell<u32>>) -> u32 {
    let pin = pin();
    let add = |value: &mut u32| {
        *value += 1;
        *value
    };
    // SAFETY: the closure does not use the cell.
    unsafe { cells.mine(&pin).with(&pin, add) }
}

#[test]
fn each_thread_has_its_core() {
    loom::model(|| {
        let cells = Arc::new(PerCore::new(2, |core| OwnerCell::new(core, 0)));
        let theirs = Arc::clone(&cells);
        let other = thread::spawn(move || {
            let _core = threads::enter(CoreId::new(1));
            add_one(&theirs)
        });
        let core = threads::enter(CoreId::new(0));
        assert_eq!(add_one(&cells), 1);
        assert_eq!(other.join().unwrap(), 1);
        drop(core);
        let _core = threads::enter(CoreId::new(1));
        assert_eq!(add_one(&cells), 2, "the core was handed over with its data");
    });
}

/// Two parts begin at once, while one of the two looks at all there are.
#[test]
fn no_part_is_lost() {
    loom::model(|| {
        let parts = Arc::new(LazyPerCore::try_new(2).unwrap());
        let theirs = Arc::clone(&parts);
        let other = thread::spawn(move || {
            let _core = threads::enter(CoreId::new(1));
            theirs.mine_or_new(&pin(), CoreId::index);
        });
        let _core = threads::enter(CoreId::new(0));
        parts.mine_or_new(&pin(), CoreId::index);
        assert!(parts.iter().any(|&part| part == 0));
        other.join().unwrap();
        let all: Vec<_> = parts.iter().copied().collect();
        assert!(all == [0, 1] || all == [1, 0], "{all:?}");
    });
}
