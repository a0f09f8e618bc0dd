use std::io::Write as _;
use std::path::Path;

use super::super::predecessor::HandoverPoint;
use super::super::successor::{self, Predecessor};
use super::*;
use tollgate_wire::transport::listening_socket::bind_unix;

fn attempts(path: &Path) -> HandoverAttempts {
    let listener = bind_unix(path, 0o600).unwrap();
    listener.set_nonblocking(true).unwrap();
    let state = OfferState {
        sockets: Some(Arc::default()),
        starting: Vec::new(),
    };
    HandoverAttempts::new(
        listener,
        TakeOverRight::create().unwrap(),
        Arc::new(Mutex::new(state)),
    )
}

/// Answers until so many processes have the sockets.
fn answer(mut attempts: HandoverAttempts, count: usize) -> HandoverAttempts {
    while attempts.state.lock().starting.len() < count {
        attempts.next().unwrap();
    }
    attempts
}

fn ask(path: &Path) -> Predecessor {
    successor::take_over(path)
        .unwrap()
        .unwrap()
        .predecessor
        .unwrap()
}

#[test]
fn of_two_processes_one_takes_over_from_a_predecessor_that_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    let attempts = attempts(&path);
    let answering = thread::spawn(move || answer(attempts, 2));
    let [first, second] = [ask(&path), ask(&path)];
    drop(answering.join().unwrap());
    first.release().unwrap();
    let late = second.release().unwrap_err().to_string();
    assert!(late.starts_with("too late to take over"), "{late}");
}

#[test]
fn a_predecessor_that_answers_after_another_process_has_taken_over_drains() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    let attempts = attempts(&path);
    // By a process that did not wait for the answer.
    assert!(attempts.right.take().unwrap());
    let answering = thread::spawn(move || attempts.run());
    let late = ask(&path).release().unwrap_err().to_string();
    assert!(late.starts_with("too late to take over"), "{late}");
    assert_eq!(answering.join().unwrap().pid, None);
}

#[test]
fn processes_that_connect_and_say_nothing_keep_no_other_from_taking_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handover.sock");
    let (successor, _offer) = HandoverPoint::open(&path, None)
        .unwrap()
        .offer(OfferedSockets::default())
        .unwrap()
        .open();
    let mut silent = [(); 2].map(|()| UnixStream::connect(&path).unwrap());
    silent[1].write_all(b"{\"take_over\"").unwrap();
    ask(&path).release().unwrap();
    assert_eq!(
        successor.blocking_recv().unwrap().pid,
        Some(std::process::id())
    );
}
