//! Follows the frames that a client sends, by their headers alone, as they pass to the codec.
//!
//! Guarantees that no client makes the codec work for frames that carry nothing: content pays for
//! them. Reports two facts that the codec does not: that a frame has begun and not ended, and the
//! error of a malformed frame.

use h2::Reason;

use super::trailer_start::TrailerStart;
use tollgate_limiter::clock::{self, Instant};

/// Frames without content that a client may send ahead of its content: Envoy's bound on control
/// frames.
const CONTROL_FRAMES: i64 = 1_000;
/// Bytes of content, in either direction, that pay for one more control frame.
const BYTES_PER_FRAME: i64 = 128;
/// Control frames that each request pays for.
const FRAMES_PER_REQUEST: i64 = 10;
/// Control frames that each second pays for.
const FRAMES_PER_SECOND: i64 = 100;

/// Resets that may come while the client takes none of our output: `h2` forgets the streams only as
/// it writes. Four times the streams that a client may have open.
const RESETS_UNREAD: u32 = 512;

/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// Flags of frames. ACK and END_STREAM are the same bit.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Bytes of a frame's header, and of the text before the first frame (RFC 9113 §3.4).
const HEADER: usize = 9;
const PREFACE: usize = 24;
/// Bytes of a setting, and the setting whose violation h2 reports with another error.
const SETTING: usize = 6;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A reason to end a connection before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The first frame is not SETTINGS (RFC 9113 §3.4).
    Preface,
    /// A frame has not the length of its type (RFC 9113 §4.2).
    FrameSize,
    /// A window above 2^31 - 1 (RFC 9113 §6.5.2).
    Window,
    /// More streams with malformed trailers than one at a time (RFC 9113 §8.1, §5.4.1).
    Trailers,
    /// More frames without content than the content pays for.
    ControlFrames,
    /// More requests reset right after they were made than a client needs, or while it takes
    /// nothing.
    Resets,
}

/// The state between two reads.
#[derive(Debug)]
pub struct FrameParser {
    header: [u8; HEADER],
    /// Bytes of `header` that have come.
    filled: usize,
    /// Bytes of the frame's payload that are still to come.
    payload: usize,
    kind: u8,
    /// The setting that is being read.
    setting: [u8; SETTING],
    /// Bytes of `setting` that have come.
    setting_filled: usize,
    /// A header block has begun, and its last frame has not come.
    in_block: bool,
    first: bool,
    /// Control frames that are paid for.
    budget: i64,
    /// Bytes of content that have not paid for a whole frame yet.
    content: i64,
    refilled: Instant,
    /// The client takes nothing for now.
    pub write_blocked: bool,
    /// Resets since the client last took something.
    unread_resets: u32,
    /// The client has acknowledged our SETTINGS.
    pub acknowledged: bool,
    /// Units that have come whole: header blocks, and other frames.
    pub finished: u64,
    /// The latest stream that the client has opened.
    opened: u32,
    /// The start of a trailer section, while it is being read.
    trailers: Option<TrailerStart>,
    /// The stream whose trailer section begins with a pseudo-field.
    pub malformed: Option<u32>,
}

impl Violation {
    /// The error code for the client (RFC 9113 §7).
    pub fn reason(self) -> Reason {
        match self {
            Self::Preface | Self::Trailers => Reason::PROTOCOL_ERROR,
            Self::FrameSize => Reason::FRAME_SIZE_ERROR,
            Self::Window => Reason::FLOW_CONTROL_ERROR,
            Self::ControlFrames | Self::Resets => Reason::ENHANCE_YOUR_CALM,
        }
    }
}

impl FrameParser {
    /// Follows a connection from its first byte.
    pub fn new() -> Self {
        Self {
            header: [0; HEADER],
            filled: 0,
            payload: PREFACE,
            kind: SETTINGS,
            setting: [0; SETTING],
            setting_filled: 0,
            in_block: false,
            first: true,
            budget: CONTROL_FRAMES,
            content: 0,
            refilled: clock::now(),
            write_blocked: false,
            unread_resets: 0,
            acknowledged: false,
            finished: 0,
            opened: 0,
            trailers: None,
            malformed: None,
        }
    }

    /// Whether a frame or header block has begun and not ended. A body may take its time: it has a
    /// limit of its own.
    pub fn is_unfinished(&self) -> bool {
        self.in_block || self.filled > 0 || (self.payload > 0 && self.kind != DATA)
    }

    /// Follows the bytes that were read.
    ///
    /// # Errors
    /// The violation, and the number of bytes before the frame at fault.
    pub fn follow(&mut self, mut read: &[u8]) -> Result<(), (usize, Violation)> {
        let length = read.len();
        while !read.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(read.len());
                self.read_payload(&read[..skipped])
                    .map_err(|violation| (length - read.len(), violation))?;
                self.payload -= skipped;
                read = &read[skipped..];
                self.end_frame();
                continue;
            }
            let missing = (HEADER - self.filled).min(read.len());
            let before = length - read.len();
            self.header[self.filled..self.filled + missing].copy_from_slice(&read[..missing]);
            self.filled += missing;
            read = &read[missing..];
            if self.filled == HEADER {
                self.filled = 0;
                self.begin_frame()
                    .map_err(|violation| (before, violation))?;
                self.end_frame();
            }
        }
        Ok(())
    }

    /// Records content that was written. Such content pays for frames, too: a client opens its
    /// window for it.
    pub fn wrote(&mut self, bytes: usize) {
        self.unread_resets = 0;
        self.pay(bytes);
    }

    fn begin_frame(&mut self) -> Result<(), Violation> {
        let [high, middle, low, kind, flags, ..] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.kind = kind;
        self.payload = length;
        if std::mem::replace(&mut self.first, false) && (kind != SETTINGS || flags & ACK != 0) {
            return Err(Violation::Preface);
        }
        let has_its_length = match kind {
            PRIORITY => length == 5,
            RST_STREAM | WINDOW_UPDATE => length == 4,
            PING => length == 8,
            GOAWAY => length >= 8,
            SETTINGS if flags & ACK != 0 => length == 0,
            SETTINGS => length.is_multiple_of(6),
            _ => true,
        };
        if !has_its_length {
            return Err(Violation::FrameSize);
        }
        match kind {
            HEADERS => {
                self.begin_section(flags);
                self.in_block = flags & END_HEADERS == 0;
                self.budget = (self.budget + FRAMES_PER_REQUEST).min(CONTROL_FRAMES);
            }
            CONTINUATION => self.in_block = flags & END_HEADERS == 0,
            DATA if length > 0 || flags & ACK != 0 => self.pay(length),
            RST_STREAM if self.write_blocked => self.charge_unread_reset()?,
            SETTINGS if flags & ACK != 0 => {
                self.acknowledged = true;
                self.charge()?;
            }
            // Answers are charged like the rest: the gateway asks for few, and others are a flood.
            _ => self.charge()?,
        }
        Ok(())
    }

    /// A section on a stream that is open already has trailers.
    fn begin_section(&mut self, flags: u8) {
        let [.., high, upper, lower, low] = self.header;
        let stream = u32::from_be_bytes([high & 0x7f, upper, lower, low]);
        if stream > self.opened {
            self.opened = stream;
        } else {
            self.trailers = Some(TrailerStart::new(stream, flags));
        }
    }

    /// Reads the payloads that matter: settings, and the start of trailers.
    fn read_payload(&mut self, payload: &[u8]) -> Result<(), Violation> {
        if self.kind == SETTINGS {
            return self.read_settings(payload);
        }
        let Some(trailers) = &mut self.trailers else {
            return Ok(());
        };
        let Some(is_pseudo) = trailers.read(payload) else {
            return Ok(());
        };
        let stream = trailers.stream;
        self.trailers = None;
        if is_pseudo && self.malformed.replace(stream).is_some() {
            return Err(Violation::Trailers);
        }
        Ok(())
    }

    fn charge_unread_reset(&mut self) -> Result<(), Violation> {
        self.unread_resets += 1;
        if self.unread_resets > RESETS_UNREAD {
            Err(Violation::Resets)
        } else {
            self.charge()
        }
    }

    fn read_settings(&mut self, payload: &[u8]) -> Result<(), Violation> {
        for byte in payload {
            self.setting[self.setting_filled] = *byte;
            self.setting_filled = (self.setting_filled + 1) % SETTING;
            let [high, low, value, ..] = self.setting;
            if self.setting_filled == 0
                && u16::from_be_bytes([high, low]) == INITIAL_WINDOW_SIZE
                && value & 0x80 != 0
            {
                return Err(Violation::Window);
            }
        }
        Ok(())
    }

    /// Counts the frame, if all of it has come.
    fn end_frame(&mut self) {
        let is_whole = self.payload == 0 && !self.in_block;
        self.finished += u64::from(is_whole);
        if is_whole {
            self.trailers = None;
        }
    }

    fn pay(&mut self, bytes: usize) {
        self.content += i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        if self.content >= BYTES_PER_FRAME {
            self.budget = (self.budget + self.content / BYTES_PER_FRAME).min(CONTROL_FRAMES);
            self.content %= BYTES_PER_FRAME;
        }
    }

    /// Charges for a control frame. Reads the clock only when the budget is used up.
    fn charge(&mut self) -> Result<(), Violation> {
        self.budget -= 1;
        if self.budget >= 0 {
            return Ok(());
        }
        let now = clock::now();
        let passed = now.saturating_duration_since(self.refilled).as_millis();
        let refill = i64::try_from(passed).unwrap_or(i64::MAX) / (1_000 / FRAMES_PER_SECOND);
        self.budget = self.budget.saturating_add(refill).min(CONTROL_FRAMES);
        self.refilled = now;
        if self.budget < 0 {
            Err(Violation::ControlFrames)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn begun() -> FrameParser {
        let mut parser = FrameParser::new();
        parser.follow(&[0; PREFACE]).unwrap();
        parser.follow(&frame(SETTINGS, 0, &[])).unwrap();
        parser
    }

    #[test]
    fn frames_are_followed_however_they_are_cut() {
        let sent = [
            vec![0; PREFACE],
            frame(SETTINGS, 0, &[0; 12]),
            frame(HEADERS, 0, &[0; 3]),
            frame(CONTINUATION, 0, &[0; 3]),
            frame(CONTINUATION, END_HEADERS, &[]),
            frame(DATA, 0, &[0; 300]),
            frame(PING, 0, &[0; 8]),
        ]
        .concat();
        for size in 1..sent.len() {
            let mut parser = FrameParser::new();
            for piece in sent.chunks(size) {
                parser.follow(piece).unwrap();
            }
            assert!(!parser.is_unfinished());
            assert_eq!(parser.budget, CONTROL_FRAMES - 1, "{size}");
        }
    }

    #[test]
    fn a_header_block_is_unfinished_until_its_last_frame() {
        let mut parser = begun();
        for (sent, unfinished) in [
            (&frame(HEADERS, 0, &[0; 3])[..], true),
            (&frame(CONTINUATION, 0, &[0; 3]), true),
            (&frame(CONTINUATION, END_HEADERS, &[0; 3])[..11], true),
            (&[0], false),
            (&frame(DATA, 0, &[0; 30])[..20], false),
            (&[0; 19], false),
            (&[0], true),
        ] {
            parser.follow(sent).unwrap();
            assert_eq!(parser.is_unfinished(), unfinished);
        }
    }

    #[test]
    fn a_frame_of_the_wrong_length_is_named_with_its_place() {
        for (kind, flags, length) in [
            (PRIORITY, 0, 4),
            (RST_STREAM, 0, 5),
            (SETTINGS, 0, 5),
            (SETTINGS, ACK, 6),
            (PING, 0, 7),
            (GOAWAY, 0, 7),
        ] {
            let good = frame(DATA, 0, &[1; 7]);
            let sent = [good.clone(), frame(kind, flags, &vec![0; length])].concat();
            assert_eq!(
                begun().follow(&sent),
                Err((good.len(), Violation::FrameSize)),
                "{kind}"
            );
        }
        let sent = [vec![0; PREFACE], frame(PING, 0, &[0; 8])].concat();
        assert_eq!(
            FrameParser::new().follow(&sent),
            Err((PREFACE, Violation::Preface))
        );
        let settings = frame(SETTINGS, 0, &[0, 3, 255, 0, 0, 0, 0, 4, 128, 0, 0, 0]);
        assert_eq!(begun().follow(&settings), Err((HEADER, Violation::Window)));
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_content_are_paid_for_by_content_requests_and_time() {
        let ping = frame(PING, 0, &[0; 8]);
        assert_eq!(accepted(&mut begun(), &ping), 999);
        for (kind, payload, paid) in [(HEADERS, 10, 9), (DATA, 128 * 20, 19)] {
            let mut parser = begun();
            parser.budget = 0;
            parser
                .follow(&frame(kind, END_HEADERS, &vec![0; payload]))
                .unwrap();
            assert_eq!(accepted(&mut parser, &ping), paid + 1);
        }
        let mut parser = begun();
        parser.budget = 0;
        tokio::time::advance(std::time::Duration::from_millis(100)).await;
        assert_eq!(accepted(&mut parser, &ping), 10);
    }

    /// The number of times that `frames` are accepted, 2 000 at most.
    fn accepted(parser: &mut FrameParser, frames: &[u8]) -> usize {
        (0..2_000)
            .take_while(|_| parser.follow(frames).is_ok())
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_may_reset_only_so_many_requests() {
        let request = [
            frame(HEADERS, END_HEADERS, &[0; 9]),
            frame(RST_STREAM, 0, &[0; 4]),
        ]
        .concat();
        assert_eq!(
            accepted(&mut begun(), &request),
            2_000,
            "requests pay for resets"
        );
        let mut parser = begun();
        parser.write_blocked = true;
        assert_eq!(accepted(&mut parser, &request), 512);
        let mut parser = begun();
        parser.write_blocked = true;
        for _ in 0..10 {
            (0..500).for_each(|_| parser.follow(&request).unwrap());
            parser.wrote(1);
        }
    }

    #[test]
    fn answers_that_nobody_asked_for_are_a_flood() {
        for answer in [frame(PING, ACK, &[0; 8]), frame(SETTINGS, ACK, &[])] {
            let mut parser = begun();
            let refused = (0..2 * CONTROL_FRAMES).find_map(|_| parser.follow(&answer).err());
            assert_eq!(refused, Some((0, Violation::ControlFrames)));
        }
    }
}
