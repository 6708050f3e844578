//! Web servers answer requests for the same page of 612 bytes, as those of NGINX do in the LODIC paper (5.1).
//!
//! Each process is a client. It starts a server on its own CPU and sends it requests by a pipe, one after the
//! other. The server reads the page's file for each and answers by another pipe. So a round is a request and
//! its answer, pairs share nothing but the open file and its page, and what a round moves between CPUs is
//! the count of that page. With --mapped each server maps the page and asks the kernel to count its reads
//! there, as LODIC does (`read_refs=lodic`).

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::FileExt;

use programs::args::{Args, Parsed};
use programs::benchmark::{Options, Program};
use programs::memory::PAGE;
use programs::processes::spawn;
use programs::shared_file::{Buffer, map_counted, unnamed};
use programs::{die, require};

const PROGRAM: Program = Program {
    usage: "usage: webserve [OPTIONS]\nEach process asks a server of its own for the same page of one file.",
    options: "  --bytes N       bytes of the page, 1 to 4096 (default 612)\n  \
         --mapped        each server maps the page and has its reads counted there\n",
    pages: (0, 0),
    iterations: 10_000,
};

const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The page, and how servers read it.
struct Site {
    file: File,
    bytes: usize,
    mapped: bool,
}

fn site(args: &mut Args) -> Parsed<Site> {
    let bytes = args.number("--bytes", 612, 1..=PAGE as u64)? as usize;
    Ok(Site { file: unnamed("webserve", &page(bytes)), bytes, mapped: args.flag("--mapped") })
}

/// Returns the page.
fn page(bytes: usize) -> Vec<u8> {
    b"<p>Hello</p>\n".iter().copied().cycle().take(bytes).collect()
}

fn header(bytes: usize) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes()
}

impl Site {
    /// Answers requests until there are no more.
    fn serve(&self, mut requests: PipeReader, mut answers: PipeWriter) {
        if self.mapped {
            map_counted(&self.file, 1);
        }
        let (header, mut buffer) = (header(self.bytes), Buffer::new());
        let mut answer = header.clone();
        let mut request = [0; REQUEST.len()];
        while requests.read_exact(&mut request).is_ok() {
            if request != REQUEST {
                die("the server does not know this request");
            }
            let body = &mut buffer.0[..self.bytes];
            require(self.file.read_exact_at(body, 0), "pread");
            answer.truncate(header.len());
            answer.extend_from_slice(body);
            require(answers.write_all(&answer), "writing an answer");
        }
    }
}

/// A client, and its pipes to and from its server.
struct Client {
    requests: PipeWriter,
    answers: PipeReader,
    expected: Vec<u8>,
    buffer: Vec<u8>,
}

impl Client {
    /// Starts the client's server, which ends when the client does.
    fn new(site: &Site) -> Self {
        let (to_serve, requests) = require(io::pipe(), "pipe");
        let (answers, answer) = require(io::pipe(), "pipe");
        let mut pipes = Some((to_serve, answer));
        let served = spawn(|| {
            // SAFETY: this process does not use the client's ends, whose copies it must not hold open.
            unsafe { close_ends(&requests, &answers) };
            let (requests, answers) = pipes.take().unwrap_or_else(|| die("a server starts once"));
            site.serve(requests, answers);
        });
        require(served, "fork");
        let expected = [header(site.bytes), page(site.bytes)].concat();
        Self { requests, answers, buffer: vec![0; expected.len()], expected }
    }

    fn ask(&mut self) {
        require(self.requests.write_all(REQUEST), "writing a request");
        require(self.answers.read_exact(&mut self.buffer), "reading an answer");
        if self.buffer != self.expected {
            die("the answer is not the page");
        }
    }
}

/// Closes the client's ends of the pipes.
///
/// # Safety
/// The caller does not use or drop them.
unsafe fn close_ends(requests: &PipeWriter, answers: &PipeReader) {
    use std::os::fd::AsRawFd;
    for end in [requests.as_raw_fd(), answers.as_raw_fd()] {
        // SAFETY: the caller's promise.
        unsafe { libc::close(end) };
    }
}

fn main() {
    let (options, site) = Options::parse_with(&PROGRAM, |args, _| site(args));
    options.run_processes("webserve", |_| Client::new(&site), |client, _| client.ask());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_with_the_page_until_its_client_ends() {
        let site = Site { file: unnamed("webserve-test", &page(612)), bytes: 612, mapped: true };
        let (to_serve, mut requests) = io::pipe().unwrap();
        let (mut answers, answer) = io::pipe().unwrap();
        requests.write_all(&REQUEST.repeat(2)).unwrap();
        drop(requests);
        site.serve(to_serve, answer);
        let mut all = Vec::new();
        answers.read_to_end(&mut all).unwrap();
        assert_eq!(all, [header(612), page(612)].concat().repeat(2));
    }
}
