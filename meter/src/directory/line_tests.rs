use super::*;
use Kind::*;

const C: usize = 0;
const D: usize = 1;
const E: usize = 100;

fn load(line: &Line, cpu: usize) -> Seen {
    at(line, cpu, false, 1)
}

fn store(line: &Line, cpu: usize) -> Seen {
    at(line, cpu, true, 1)
}

fn at(line: &Line, cpu: usize, store: bool, bytes: u64) -> Seen {
    line.access(&Access { cpu, store, bytes, pc: 0x1000 * (cpu as u64 + 1) + u64::from(store) })
}

fn moved(seen: Seen) -> (Kind, u64) {
    match seen {
        Seen::Moved(transfer) => (transfer.kind, transfer.invalidations),
        other => panic!("{other:?} is no transfer"),
    }
}

fn line(history: &[(usize, bool)]) -> Line {
    let line = Line::default();
    for (cpu, store) in history {
        at(&line, *cpu, *store, 1);
    }
    line
}

const LOAD: bool = false;
const STORE: bool = true;

#[test]
fn unused() {
    assert_eq!(load(&line(&[]), C), Seen::Cold);
    assert_eq!(store(&line(&[]), C), Seen::Cold);
}

#[test]
fn owned_clean_by_itself() {
    let line = line(&[(C, LOAD)]);
    assert_eq!(load(&line, C), Seen::Hit);
    assert_eq!(store(&line, C), Seen::Hit);
    assert_eq!(moved(load(&line, D)), (ReadModified, 0), "the store was noticed");
}

#[test]
fn owned_modified_by_itself() {
    let line = line(&[(C, STORE)]);
    assert_eq!((load(&line, C), store(&line, C)), (Seen::Hit, Seen::Hit));
}

#[test]
fn owned_clean_by_another() {
    let shared = line(&[(D, LOAD)]);
    assert_eq!(moved(load(&shared, C)), (ReadClean, 0));
    assert_eq!((load(&shared, C), load(&shared, D)), (Seen::Hit, Seen::Hit));
    let taken = line(&[(D, LOAD)]);
    assert_eq!(moved(store(&taken, C)), (WriteClean, 1));
    assert_eq!(store(&taken, C), Seen::Hit);
}

#[test]
fn owned_modified_by_another() {
    let shared = line(&[(D, STORE)]);
    assert_eq!(moved(load(&shared, C)), (ReadModified, 0));
    assert_eq!(moved(load(&shared, E)), (ReadClean, 0), "the first reader made it clean");
    let taken = line(&[(D, STORE)]);
    assert_eq!(moved(store(&taken, C)), (WriteModified, 1));
    assert_eq!(moved(load(&taken, D)), (ReadModified, 0));
}

#[test]
fn shared_with_others() {
    let line = line(&[(C, LOAD), (D, LOAD), (E, LOAD)]);
    assert_eq!(load(&line, D), Seen::Hit);
    assert_eq!(moved(store(&line, D)), (Upgrades, 2));
    assert_eq!(store(&line, D), Seen::Hit);
    assert_eq!(moved(load(&line, E)), (ReadModified, 0), "its copy was removed");
    assert_eq!(moved(store(&line, E)), (Upgrades, 1), "only the owner was left");
}

#[test]
fn shared_by_others() {
    let line = line(&[(D, LOAD), (E, LOAD)]);
    assert_eq!(moved(store(&line, C)), (WriteClean, 2));
    let line = self::line(&[(D, LOAD), (E, LOAD)]);
    assert_eq!(moved(load(&line, C)), (ReadClean, 0));
    assert_eq!(moved(store(&line, E)), (Upgrades, 2));
}

fn transfer(seen: Seen) -> Transfer {
    match seen {
        Seen::Moved(transfer) => transfer,
        other => panic!("{other:?} is no transfer"),
    }
}

#[test]
fn blame_names_the_other_side() {
    let line = line(&[(C, STORE)]);
    assert_eq!(transfer(load(&line, D)).from, Origin::new(C, 0x1001), "the writer");
    assert_eq!(transfer(store(&line, C)).from, Origin::new(D, 0x2000), "the reader");
    assert_eq!(transfer(store(&line, D)).from, Origin::new(C, 0x1001), "the writer");
    load(&line, C);
    assert_eq!(transfer(store(&line, C)).from, Origin::new(D, 0x2001), "an own load is nobody's fault");
}

#[test]
fn a_writer_that_reads_again_fights_the_reader_and_not_itself() {
    let line = line(&[(C, STORE), (D, LOAD), (C, LOAD)]);
    assert_eq!(transfer(store(&line, C)).from, Origin::new(D, 0x2000));
}

#[test]
fn false_sharing_touches_different_bytes() {
    let line = Line::default();
    at(&line, C, STORE, 0x0f);
    at(&line, C, LOAD, 0x0f);
    assert_eq!(transfer(at(&line, D, LOAD, 0xf0)).bytes_from, 0x0f);
    assert_eq!(transfer(at(&line, C, STORE, 0x0f)).bytes_from, 0xf0);
    assert_eq!(transfer(at(&line, D, STORE, 0xf0)).bytes_from, 0x0f);
}

#[test]
fn true_sharing_touches_the_same() {
    let line = Line::default();
    at(&line, C, STORE, 0x0f);
    at(&line, C, STORE, 0xf0);
    assert_eq!(transfer(at(&line, D, STORE, 0x10)).bytes_from, 0xff);
    assert_eq!(transfer(at(&line, C, LOAD, 0x10)).bytes_from, 0x10);
}

/// Two host threads alternate in no order. Every transfer away from one was counted by the other.
#[test]
fn two_threads_agree_on_the_number_of_transfers() {
    let line = Line::default();
    let run = |cpu| (0..100_000).filter(|_| matches!(store(&line, cpu), Seen::Moved(_))).count() as i64;
    let (c, d) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(D));
        (run(C), other.join().unwrap())
    });
    assert!((c - d).abs() <= 1, "an owner changes by turns: {c} and {d}");
}
