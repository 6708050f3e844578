//! A naive model of POSIX calls: names, files, pipes, sockets, descriptors and pages of memory, without
//! concurrency.
//!
//! Contents are kept by page, each with one value. A result that POSIX leaves open is a label, not a number:
//! a new file, open file or pipe is called after the call that makes it. So two states are equivalent exactly
//! if they are equal.

use crate::call::*;
use crate::case::Mode;

const ENOENT: i64 = 2;
const EBADF: i64 = 9;
const EAGAIN: i64 = 11;
const ENOMEM: i64 = 12;
const EACCES: i64 = 13;
const EFAULT: i64 = 14;
const EEXIST: i64 = 17;
const ENODEV: i64 = 19;
const EINVAL: i64 = 22;
const ESPIPE: i64 = 29;
const EPIPE: i64 = 32;
const ENOTSOCK: i64 = 88;

/// The most pages of a file, and of a pipe, in the model. Linux's pipes hold more, so a full one never blocks
/// a test.
const MOST_PAGES: usize = 4;
/// `fstat` of a pipe reports a file of its own, whose label is the pipe's plus this.
const PIPE_LABEL: i64 = 1000;

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call returned.
    Returned(Answer),
    /// The call would block, or end the process: such a test is left out.
    Undefined,
}

/// The results of a call.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Answer {
    /// The returned value or the negative error number, and what the call wrote to memory.
    pub values: Vec<i64>,
    /// The place in `values` of the label of a file, for which a kernel has a number of its own.
    pub label: Option<usize>,
    /// Set if a time that the call reports had been changed since the setup. Kernels' times are not compared.
    pub changed: bool,
}

/// A file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Node {
    links: u8,
    pages: Pages,
    /// Set if a call after the setup changed one of its times.
    changed: bool,
    /// The lock of each process: 0, [`SHARED`] or [`EXCLUSIVE`].
    locks: [u8; 2],
}

/// A pair of sockets. The places are those of its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Sockets {
    /// The pages that were sent to each end and not received.
    sent: [Pages; 2],
    /// Set if the end was closed before it had received all.
    is_reset: [bool; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Socket(u8, usize),
    Event(u8),
    Node(u8),
    PipeRead(u8),
    PipeWrite(u8),
}

/// The values of the pages of a file or a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Pages {
    values: [u8; MOST_PAGES],
    len: u8,
}

impl Pages {
    fn len(&self) -> usize {
        self.len.into()
    }

    fn get(&self, page: usize) -> Option<u8> {
        self.values[..self.len()].get(page).copied()
    }

    /// Sets a page, and makes those before it. Returns whether there was room.
    fn set(&mut self, page: usize, value: u8) -> bool {
        if page >= MOST_PAGES {
            return false;
        }
        self.len = self.len.max(page as u8 + 1);
        self.values[page] = value;
        true
    }

    fn pop_first(&mut self) -> Option<u8> {
        let first = self.get(0)?;
        self.values.copy_within(1.., 0);
        self.values[MOST_PAGES - 1] = 0;
        self.len -= 1;
        Some(first)
    }
}

/// Things by their labels, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Labelled<T>(Vec<(u8, T)>);

impl<T> Default for Labelled<T> {
    fn default() -> Self {
        Labelled(Vec::new())
    }
}

impl<T> Labelled<T> {
    fn insert(&mut self, label: u8, thing: T) {
        let place = self.0.partition_point(|(other, _)| *other < label);
        self.0.insert(place, (label, thing));
    }

    fn get(&self, label: u8) -> &T {
        &self.0[self.place(label)].1
    }

    fn get_mut(&mut self, label: u8) -> &mut T {
        let place = self.place(label);
        &mut self.0[place].1
    }

    fn place(&self, label: u8) -> usize {
        self.0.iter().position(|(other, _)| *other == label).expect("what is referred to exists")
    }

    fn things(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, thing)| thing)
    }

    fn retain(&mut self, keep: impl Fn(u8) -> bool) {
        self.0.retain(|(label, _)| keep(*label));
    }
}

/// An open file, which several descriptors may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    target: Target,
    offset: u8,
    writable: bool,
}

/// A mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    backing: Backing,
    writable: bool,
    may_write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    Anonymous(u8),
    /// The first page of a file.
    Node(u8),
}

/// The signals of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Signals {
    pending: [bool; SIGNALS],
    ignored: [bool; SIGNALS],
}

/// The signals of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Thread {
    pending: [bool; SIGNALS],
    blocks_urgent: bool,
}

/// The state of two processes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct State {
    names: [Option<u8>; NAMES.len()],
    nodes: Labelled<Node>,
    opens: Labelled<Open>,
    pipes: Labelled<Pages>,
    sockets: Labelled<Sockets>,
    /// The counts of eventfds.
    events: Labelled<u16>,
    tables: [[Option<u8>; FDS]; 2],
    memory: [[Option<Page>; SLOTS]; 2],
    signals: [Signals; 2],
    /// By side.
    threads: [Thread; 2],
}

type Values = Result<Answer, Failure>;

enum Failure {
    Errno(i64),
    Undefined,
}

use Failure::*;

fn value(value: i64) -> Values {
    Ok(Answer { values: vec![value], ..Answer::default() })
}

fn values(values: &[i64]) -> Values {
    Ok(Answer { values: values.to_vec(), ..Answer::default() })
}

impl State {
    /// Performs a call of a side. `fresh` is the label of what the call makes. No other call may have it, nor
    /// the number after it.
    pub fn apply(&mut self, mode: Mode, side: usize, call: Call, fresh: u8) -> Outcome {
        let done = self.perform(mode, side, call, fresh);
        if matches!(
            call.op,
            Op::Close | Op::Dup2 | Op::Unlink | Op::Rename | Op::Mmap | Op::Munmap | Op::Mremap
        ) {
            self.collect();
        }
        match done {
            Ok(answer) => Outcome::Returned(answer),
            Err(Errno(number)) => Outcome::Returned(Answer { values: vec![-number], ..Answer::default() }),
            Err(Undefined) => Outcome::Undefined,
        }
    }

    /// Ends the setup: times are unchanged from here on.
    pub fn settle(&mut self) {
        self.nodes.0.iter_mut().for_each(|(_, node)| node.changed = false);
    }

    fn perform(&mut self, mode: Mode, side: usize, call: Call, fresh: u8) -> Values {
        let process = mode.process(side);
        let [first, second, third] = call.args;
        match call.op {
            Op::Open => self.open(process, first, second, fresh),
            Op::Creat => self.creat(process, first, second == 1, fresh),
            Op::Close => self.close(process, first),
            Op::Dup => self.dup(process, first),
            Op::Dup2 => self.dup2(process, first, second),
            Op::Pipe => self.pipe(process, fresh),
            Op::Link => self.link(first, second),
            Op::Unlink => self.unlink(first),
            Op::Rename => self.rename(first, second),
            Op::Stat => self.named(first).and_then(|node| self.stat(node)),
            Op::Fstat => self.fstat(process, first),
            Op::Lseek => self.lseek(process, first, second, third),
            Op::Read => self.read(process, first),
            Op::Write => self.write(process, first, second),
            Op::Pread => self.pread(process, first, second),
            Op::Pwrite => self.pwrite(process, first, second, third),
            Op::Mmap => self.mmap(process, first, second, third == 1),
            Op::Munmap => {
                self.memory[process][first as usize] = None;
                value(0)
            }
            Op::Mprotect => self.mprotect(process, first, second == 1),
            Op::Load => self.load(process, first),
            Op::Store => self.store(process, first, second),
            Op::Kill => {
                self.signals[mode.process(first.into())].pending[second as usize] = true;
                value(0)
            }
            Op::Tgkill => {
                self.threads[first as usize].pending[second as usize] = true;
                value(0)
            }
            Op::Sigpending => self.pending(process, side),
            Op::Sigmask => self.mask(side, first),
            Op::Sigaction => self.set_action(mode, process, first.into(), second),
            Op::FutexWake => value(0),
            Op::FutexWait if self.can_load(process, first) => Err(Errno(EAGAIN)),
            Op::FutexWait => Err(Errno(EFAULT)),
            Op::Ftruncate => self.ftruncate(process, first, second),
            Op::Mremap => self.mremap(process, first, second),
            Op::Socketpair => self.socketpair(process, fresh),
            Op::Send => self.send(process, first, second),
            Op::Recv => self.receive(process, first),
            Op::Eventfd => {
                self.events.insert(fresh, 0);
                self.add_open(process, Target::Event(fresh), true, fresh).and_then(value)
            }
            Op::EventWrite => self.event_write(process, first, second),
            Op::EventRead => self.event_read(process, first),
            Op::Lock => self.lock(process, first, second),
        }
    }

    /// Removes what nothing refers to any more, so that it makes no difference between states.
    fn collect(&mut self) {
        let State { names, nodes, opens, pipes, sockets, events, tables, memory, .. } = self;
        opens.retain(|label| tables.iter().flatten().any(|held| *held == Some(label)));
        let is_target = |target| opens.things().any(|open| open.target == target);
        for (label, pair) in &mut sockets.0 {
            for end in [0, 1].into_iter().filter(|end| !is_target(Target::Socket(*label, *end))) {
                pair.is_reset[end] |= pair.sent[end].len() > 0;
                pair.sent[end] = Pages::default();
            }
        }
        sockets.retain(|label| [0, 1].iter().any(|end| is_target(Target::Socket(label, *end))));
        events.retain(|label| is_target(Target::Event(label)));
        pipes.retain(|label| is_target(Target::PipeRead(label)) || is_target(Target::PipeWrite(label)));
        let is_mapped = |label| memory.iter().flatten().flatten().any(|page| page.node() == Some(label));
        nodes.retain(|label| {
            names.contains(&Some(label)) || is_target(Target::Node(label)) || is_mapped(label)
        });
    }

    fn named(&self, name: u8) -> Result<u8, Failure> {
        self.names[name as usize].ok_or(Errno(ENOENT))
    }

    fn node(&mut self, label: u8) -> &mut Node {
        self.nodes.get_mut(label)
    }

    fn touch(&mut self, label: u8) {
        self.node(label).changed = true;
    }

    /// Returns the label of the open file behind a descriptor.
    fn descriptor(&self, process: usize, fd: u8) -> Result<u8, Failure> {
        let place = fd.checked_sub(FIRST_FD).map(usize::from);
        place.and_then(|place| *self.tables[process].get(place)?).ok_or(Errno(EBADF))
    }

    fn opened(&mut self, process: usize, fd: u8) -> Result<&mut Open, Failure> {
        self.descriptor(process, fd).map(|label| self.opens.get_mut(label))
    }

    /// Gives an open file the lowest free descriptor.
    fn install(&mut self, process: usize, label: u8) -> Result<i64, Failure> {
        let table = &mut self.tables[process];
        let place = table.iter().position(Option::is_none).ok_or(Undefined)?;
        table[place] = Some(label);
        Ok(place as i64 + i64::from(FIRST_FD))
    }

    fn add_open(
        &mut self,
        process: usize,
        target: Target,
        writable: bool,
        label: u8,
    ) -> Result<i64, Failure> {
        self.opens.insert(label, Open { target, offset: 0, writable });
        self.install(process, label)
    }

    fn open(&mut self, process: usize, name: u8, how: u8, fresh: u8) -> Values {
        let node = self.named(name)?;
        if how == TRUNCATE {
            self.node(node).pages = Pages::default();
            self.touch(node);
        }
        self.add_open(process, Target::Node(node), how != READ_ONLY, fresh).and_then(value)
    }

    fn creat(&mut self, process: usize, name: u8, exclusive: bool, fresh: u8) -> Values {
        match self.names[name as usize] {
            Some(_) if exclusive => return Err(Errno(EEXIST)),
            Some(_) => {}
            None => {
                self.names[name as usize] = Some(fresh);
                self.nodes.insert(fresh, Node { links: 1, ..Node::default() });
            }
        }
        self.open(process, name, READ_WRITE, fresh)
    }

    fn close(&mut self, process: usize, fd: u8) -> Values {
        self.descriptor(process, fd)?;
        self.release_lock(process, fd);
        self.tables[process][usize::from(fd - FIRST_FD)] = None;
        value(0)
    }

    fn dup(&mut self, process: usize, fd: u8) -> Values {
        let label = self.descriptor(process, fd)?;
        self.install(process, label).and_then(value)
    }

    fn dup2(&mut self, process: usize, fd: u8, to: u8) -> Values {
        let label = self.descriptor(process, fd)?;
        if fd != to {
            self.release_lock(process, to);
        }
        *self.tables[process].get_mut(usize::from(to - FIRST_FD)).ok_or(Undefined)? = Some(label);
        value(to.into())
    }

    fn pipe(&mut self, process: usize, fresh: u8) -> Values {
        self.pipes.insert(fresh, Pages::default());
        let read = self.add_open(process, Target::PipeRead(fresh), false, fresh)?;
        let write = self.add_open(process, Target::PipeWrite(fresh), true, fresh + 1)?;
        values(&[0, read, write])
    }

    fn link(&mut self, from: u8, to: u8) -> Values {
        let node = self.named(from)?;
        if self.names[to as usize].is_some() {
            return Err(Errno(EEXIST));
        }
        self.names[to as usize] = Some(node);
        self.node(node).links += 1;
        self.touch(node);
        value(0)
    }

    fn unlink(&mut self, name: u8) -> Values {
        let node = self.named(name)?;
        self.names[name as usize] = None;
        self.node(node).links -= 1;
        self.touch(node);
        value(0)
    }

    fn rename(&mut self, from: u8, to: u8) -> Values {
        let node = self.named(from)?;
        if self.names[to as usize] == Some(node) {
            return value(0);
        }
        if self.names[to as usize].is_some() {
            self.unlink(to)?;
        }
        self.names[from as usize] = None;
        self.names[to as usize] = Some(node);
        self.touch(node);
        value(0)
    }

    fn stat(&mut self, label: u8) -> Values {
        let node = self.node(label);
        let size = (node.pages.len() * PAGE) as i64;
        let values = vec![0, label.into(), node.links.into(), size];
        Ok(Answer { values, label: Some(1), changed: node.changed })
    }

    fn fstat(&mut self, process: usize, fd: u8) -> Values {
        match self.opened(process, fd)?.target {
            Target::Node(node) => self.stat(node),
            Target::PipeRead(pipe) | Target::PipeWrite(pipe) => {
                let values = vec![0, PIPE_LABEL + i64::from(pipe), 1, 0];
                Ok(Answer { values, label: Some(1), changed: false })
            }
            Target::Socket(..) | Target::Event(_) => Err(Undefined),
        }
    }

    /// Linux looks at `whence` before it looks at the kind of file.
    fn lseek(&mut self, process: usize, fd: u8, page: u8, whence: u8) -> Values {
        let Open { target, offset, .. } = *self.opened(process, fd)?;
        if whence > END {
            return Err(Errno(EINVAL));
        }
        if matches!(target, Target::Event(_)) {
            return Err(Undefined);
        }
        let Target::Node(node) = target else { return Err(Errno(ESPIPE)) };
        let base = match whence {
            SET => 0,
            CUR => offset,
            _ => self.node(node).pages.len() as u8,
        };
        self.opened(process, fd)?.offset = base + page;
        value(i64::from(base + page) * PAGE as i64)
    }

    fn read(&mut self, process: usize, fd: u8) -> Values {
        let Open { target, offset, .. } = *self.opened(process, fd)?;
        match target {
            Target::PipeWrite(_) => Err(Errno(EBADF)),
            Target::PipeRead(pipe) => self.read_pipe(pipe),
            Target::Socket(..) | Target::Event(_) => Err(Undefined),
            Target::Node(node) => {
                let answer = self.page_of(node, offset);
                if answer.values[0] != 0 {
                    self.opened(process, fd)?.offset += 1;
                }
                Ok(answer)
            }
        }
    }

    fn read_pipe(&mut self, pipe: u8) -> Values {
        match self.pipes.get_mut(pipe).pop_first() {
            Some(first) => values(&[PAGE as i64, first.into()]),
            None if self.is_open(Target::PipeWrite(pipe)) => Err(Undefined),
            None => value(0),
        }
    }

    /// Returns what a read of one page gives.
    fn page_of(&mut self, node: u8, page: u8) -> Answer {
        let found = self.node(node).pages.get(page.into());
        let values = found.map_or(vec![0], |value| vec![PAGE as i64, value.into()]);
        Answer { values, ..Answer::default() }
    }

    fn write(&mut self, process: usize, fd: u8, data: u8) -> Values {
        let Open { target, offset, writable } = *self.opened(process, fd)?;
        if !writable {
            return Err(Errno(EBADF));
        }
        match target {
            Target::PipeRead(_) => Err(Errno(EBADF)),
            Target::PipeWrite(pipe) => self.write_pipe(pipe, data),
            Target::Socket(..) | Target::Event(_) => Err(Undefined),
            Target::Node(node) => {
                self.opened(process, fd)?.offset += 1;
                self.put(node, offset, data)
            }
        }
    }

    fn is_open(&self, target: Target) -> bool {
        self.opens.things().any(|open| open.target == target)
    }

    fn write_pipe(&mut self, pipe: u8, data: u8) -> Values {
        if !self.is_open(Target::PipeRead(pipe)) {
            return Err(Errno(EPIPE));
        }
        let pages = self.pipes.get_mut(pipe);
        if pages.set(pages.len(), data) { value(PAGE as i64) } else { Err(Undefined) }
    }

    fn put(&mut self, node: u8, page: u8, data: u8) -> Values {
        if !self.node(node).pages.set(page.into(), data) {
            return Err(Undefined);
        }
        self.touch(node);
        value(PAGE as i64)
    }

    /// Returns the file behind a descriptor that has offsets.
    fn with_offsets(&mut self, process: usize, fd: u8) -> Result<u8, Failure> {
        match self.opened(process, fd)?.target {
            Target::Node(node) => Ok(node),
            Target::Event(_) => Err(Undefined),
            _ => Err(Errno(ESPIPE)),
        }
    }

    /// Linux looks at the kind of file before it looks at the access mode.
    fn pread(&mut self, process: usize, fd: u8, page: u8) -> Values {
        let node = self.with_offsets(process, fd)?;
        Ok(self.page_of(node, page))
    }

    fn pwrite(&mut self, process: usize, fd: u8, page: u8, data: u8) -> Values {
        let node = self.with_offsets(process, fd)?;
        if !self.opened(process, fd)?.writable {
            return Err(Errno(EBADF));
        }
        self.put(node, page, data)
    }

    fn mmap(&mut self, process: usize, slot: u8, fd: u8, writable: bool) -> Values {
        let page = if fd == ANONYMOUS {
            Page { backing: Backing::Anonymous(0), writable, may_write: true }
        } else {
            self.map_file(process, fd, writable)?
        };
        self.memory[process][slot as usize] = Some(page);
        value(0)
    }

    fn map_file(&mut self, process: usize, fd: u8, writable: bool) -> Result<Page, Failure> {
        let Open { target, writable: may_write, .. } = *self.opened(process, fd)?;
        match target {
            Target::Node(_) if writable && !may_write => Err(Errno(EACCES)),
            Target::Node(node) => Ok(Page { backing: Backing::Node(node), writable, may_write }),
            Target::PipeRead(_) if !writable => Err(Errno(ENODEV)),
            Target::PipeRead(_) | Target::PipeWrite(_) => Err(Errno(EACCES)),
            Target::Socket(..) | Target::Event(_) => Err(Undefined),
        }
    }

    fn mapped(&mut self, process: usize, slot: u8) -> Option<&mut Page> {
        self.memory[process][slot as usize].as_mut()
    }

    fn mprotect(&mut self, process: usize, slot: u8, writable: bool) -> Values {
        let page = self.mapped(process, slot).ok_or(Errno(ENOMEM))?;
        if writable && !page.may_write {
            return Err(Errno(EACCES));
        }
        page.writable = writable;
        value(0)
    }

    fn load(&mut self, process: usize, slot: u8) -> Values {
        match self.mapped(process, slot).ok_or(Undefined)?.backing {
            Backing::Anonymous(data) => value(data.into()),
            Backing::Node(node) => {
                let data = self.node(node).pages.get(0);
                data.ok_or(Undefined).and_then(|data| value(data.into()))
            }
        }
    }

    fn store(&mut self, process: usize, slot: u8, data: u8) -> Values {
        let page = self.mapped(process, slot).filter(|page| page.writable).ok_or(Undefined)?;
        match &mut page.backing {
            Backing::Anonymous(old) => *old = data,
            Backing::Node(node) => {
                let node = *node;
                if self.node(node).pages.len() == 0 {
                    return Err(Undefined);
                }
                return self.put(node, 0, data).and_then(|_| value(0));
            }
        }
        value(0)
    }

    /// A page that moves leaves its place free.
    fn mremap(&mut self, process: usize, from: u8, to: u8) -> Values {
        let page = *self.mapped(process, from).ok_or(Undefined)?;
        let memory = &mut self.memory[process];
        memory[from as usize] = None;
        memory[to as usize] = Some(page);
        value(0)
    }

    /// Linux changes the times though the length stays the same.
    fn ftruncate(&mut self, process: usize, fd: u8, len: u8) -> Values {
        let Open { target, writable, .. } = *self.opened(process, fd)?;
        let Target::Node(node) = target else { return Err(Errno(EINVAL)) };
        if !writable {
            return Err(Errno(EINVAL));
        }
        let pages = &mut self.node(node).pages;
        pages.values[len.into()..].fill(0);
        pages.len = len;
        self.touch(node);
        value(0)
    }

    fn socketpair(&mut self, process: usize, fresh: u8) -> Values {
        self.sockets.insert(fresh, Sockets::default());
        let one = self.add_open(process, Target::Socket(fresh, 0), true, fresh)?;
        let other = self.add_open(process, Target::Socket(fresh, 1), true, fresh + 1)?;
        values(&[0, one, other])
    }

    /// Returns the pair and the end behind a descriptor. A pair with an end that was closed before it had
    /// received all is not modelled.
    fn socket(&mut self, process: usize, fd: u8) -> Result<(u8, usize), Failure> {
        let Target::Socket(pair, end) = self.opened(process, fd)?.target else { return Err(Errno(ENOTSOCK)) };
        if self.sockets.get(pair).is_reset[1 - end] { Err(Undefined) } else { Ok((pair, end)) }
    }

    fn send(&mut self, process: usize, fd: u8, data: u8) -> Values {
        let (pair, end) = self.socket(process, fd)?;
        if !self.is_open(Target::Socket(pair, 1 - end)) {
            return Err(Errno(EPIPE));
        }
        let pages = &mut self.sockets.get_mut(pair).sent[1 - end];
        if pages.set(pages.len(), data) { value(PAGE as i64) } else { Err(Undefined) }
    }

    fn receive(&mut self, process: usize, fd: u8) -> Values {
        let (pair, end) = self.socket(process, fd)?;
        match self.sockets.get_mut(pair).sent[end].pop_first() {
            Some(first) => values(&[PAGE as i64, first.into()]),
            None if self.is_open(Target::Socket(pair, 1 - end)) => Err(Errno(EAGAIN)),
            None => value(0),
        }
    }

    /// Returns the count behind a descriptor of an eventfd.
    fn event(&mut self, process: usize, fd: u8) -> Result<&mut u16, Failure> {
        match self.opened(process, fd)?.target {
            Target::Event(event) => Ok(self.events.get_mut(event)),
            _ => Err(Undefined),
        }
    }

    fn event_write(&mut self, process: usize, fd: u8, data: u8) -> Values {
        *self.event(process, fd)? += u16::from(data);
        value(8)
    }

    fn event_read(&mut self, process: usize, fd: u8) -> Values {
        match std::mem::take(self.event(process, fd)?) {
            0 => Err(Errno(EAGAIN)),
            count => values(&[8, count.into()]),
        }
    }

    /// A process has one lock on a file, however it got it.
    fn lock(&mut self, process: usize, fd: u8, how: u8) -> Values {
        let Open { target, writable, .. } = *self.opened(process, fd)?;
        let Target::Node(node) = target else { return Err(Undefined) };
        let other = self.node(node).locks[1 - process];
        let in_the_way = if how == SHARED { other == EXCLUSIVE } else { other != 0 };
        match how {
            ASK => return values(&[0, other.into()]),
            UNLOCK => self.node(node).locks[process] = 0,
            EXCLUSIVE if !writable => return Err(Errno(EBADF)),
            _ if in_the_way => return Err(Errno(EAGAIN)),
            _ => self.node(node).locks[process] = how,
        }
        value(0)
    }

    /// Releases the lock of a process on the file behind a descriptor that is closed, though others stay.
    fn release_lock(&mut self, process: usize, fd: u8) {
        if let Ok(&mut Open { target: Target::Node(node), .. }) = self.opened(process, fd) {
            self.node(node).locks[process] = 0;
        }
    }

    fn pending(&self, process: usize, side: usize) -> Values {
        let sets = [self.signals[process].pending, self.threads[side].pending];
        let bits =
            (0..SIGNALS).filter(|signal| sets.iter().any(|set| set[*signal])).map(|signal| 1 << signal);
        values(&[0, bits.sum()])
    }

    fn mask(&mut self, side: usize, how: u8) -> Values {
        let thread = &mut self.threads[side];
        let before = thread.blocks_urgent;
        if how != ASK {
            thread.blocks_urgent = how == BLOCK;
        }
        values(&[0, before.into()])
    }

    /// A signal that becomes ignored is not pending any more, though it is blocked.
    fn set_action(&mut self, mode: Mode, process: usize, signal: usize, how: u8) -> Values {
        let before = self.signals[process].ignored[signal];
        if how != ASK {
            self.signals[process].ignored[signal] = how == IGNORE;
        }
        if how == IGNORE {
            self.signals[process].pending[signal] = false;
            let threads =
                self.threads.iter_mut().enumerate().filter(|(side, _)| mode.process(*side) == process);
            threads.for_each(|(_, thread)| thread.pending[signal] = false);
        }
        values(&[0, before.into()])
    }

    /// Returns whether a signal is pending for a process.
    pub fn is_pending(&self, process: usize) -> bool {
        self.signals[process].pending.contains(&true)
    }

    /// Returns whether a signal is pending for the thread of a side.
    pub fn is_pending_for_thread(&self, side: usize) -> bool {
        self.threads[side].pending.contains(&true)
    }

    /// Returns the label of the file with a name, if there is one.
    pub fn file_named(&self, name: u8) -> Option<u8> {
        self.names[name as usize]
    }

    /// Returns the labels of the open file behind a descriptor and of its file or pipe, if it is open.
    pub fn file_behind(&self, process: usize, fd: u8) -> Option<(u8, i64)> {
        let label = self.descriptor(process, fd).ok()?;
        Some((
            label,
            match self.opens.get(label).target {
                Target::Node(node) => node.into(),
                Target::PipeRead(other)
                | Target::PipeWrite(other)
                | Target::Socket(other, _)
                | Target::Event(other) => PIPE_LABEL + i64::from(other),
            },
        ))
    }

    /// Returns the kind of a descriptor in a word.
    pub fn kind_of(&self, process: usize, fd: u8) -> &'static str {
        let open = self.descriptor(process, fd).ok().map(|label| self.opens.get(label));
        match open.map(|open| (open.target, open.writable)) {
            None => "closed",
            Some((Target::Node(_), true)) => "file",
            Some((Target::Node(_), false)) => "read-only",
            Some((Target::PipeRead(_), _)) => "read-end",
            Some((Target::PipeWrite(_), _)) => "write-end",
            Some((Target::Socket(..), _)) => "socket",
            Some((Target::Event(_), _)) => "event",
        }
    }

    /// Returns whether a load from a slot has a result.
    pub fn can_load(&self, process: usize, slot: u8) -> bool {
        self.clone().load(process, slot).is_ok()
    }

    /// Returns the kind of a slot in a word, and the label of the file that it maps.
    pub fn kind_of_slot(&self, process: usize, slot: u8) -> (&'static str, Option<u8>) {
        match &self.memory[process][slot as usize] {
            None => ("unmapped", None),
            Some(page) => (if page.writable { "writable" } else { "read-only" }, page.node()),
        }
    }
}

impl Page {
    fn node(&self) -> Option<u8> {
        match self.backing {
            Backing::Node(node) => Some(node),
            Backing::Anonymous(_) => None,
        }
    }
}
