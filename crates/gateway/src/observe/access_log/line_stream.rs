//! Lines that are written one after the other, to a file or a connection.

use std::io::{self, Write};

/// Writes lines one after the other. A line that was cut by an error does not run into the next.
pub struct LineStream<W> {
    out: W,
    /// The latest line has no end.
    is_torn: bool,
}

/// The outcome of a write.
#[derive(Debug, Default)]
pub struct WriteOutcome {
    /// Lines that were lost.
    pub lost: u64,
    /// The error that cost the lines.
    pub error: Option<io::Error>,
}

impl<W: Write> LineStream<W> {
    pub fn new(out: W) -> Self {
        Self {
            out,
            is_torn: false,
        }
    }

    /// Writes whole lines, as far as they are taken.
    pub fn write(&mut self, lines: &[u8]) -> WriteOutcome {
        if self.is_torn
            && let Err(error) = self.out.write_all(b"\n")
        {
            return WriteOutcome::lost(lines, error);
        }
        let (written, error) = write_all(&mut self.out, lines);
        self.is_torn = written > 0 && lines[written - 1] != b'\n';
        match error {
            Some(error) => WriteOutcome::lost(&lines[written..], error),
            None => WriteOutcome::default(),
        }
    }

    pub fn get_ref(&self) -> &W {
        &self.out
    }
}

impl WriteOutcome {
    /// The outcome if all of `lines` are lost, the rest of a line among them.
    pub fn lost(lines: &[u8], error: io::Error) -> Self {
        Self {
            lost: lines.split_inclusive(|byte| *byte == b'\n').count() as u64,
            error: Some(error),
        }
    }
}

/// Writes as many bytes as are taken. Returns their number, and the error that ended the write.
fn write_all(out: &mut impl Write, bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while written < bytes.len() {
        match out.write(&bytes[written..]) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with bounded room.
    struct Disk {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= fits;
            self.taken.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_has_cut_does_not_run_into_the_next() {
        let mut stream = LineStream::new(Disk {
            taken: Vec::new(),
            room: 6,
        });
        assert_eq!(stream.write(b"one\ntwo\nthree\n").lost, 2);
        assert_eq!(stream.write(b"four\n").lost, 1);
        stream.out.room = 100;
        let outcome = stream.write(b"five\nsix\n");
        assert_eq!((outcome.lost, outcome.error.is_none()), (0, true));
        assert_eq!(
            String::from_utf8_lossy(&stream.out.taken),
            "one\ntw\nfive\nsix\n"
        );
    }
}
