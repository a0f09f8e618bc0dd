//! The reasons for which a store could not decide, and their names in metrics.

/// Why a store could not decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("no answer in time")]
    Timeout,
    #[error("the connection is down")]
    Io,
    /// A replica, or a primary that protects itself.
    #[error("the server takes no writes")]
    ReadOnly,
    #[error("the server is loading its data")]
    Loading,
    #[error("the server is out of memory")]
    OutOfMemory,
    /// Or the cluster is down.
    #[error("the key lives on another server")]
    Moved,
    #[error("the server refuses the credentials or their permissions")]
    Auth,
    #[error("the server is busy with a script")]
    Busy,
    /// More calls in flight than the client takes.
    #[error("too many calls wait for the server")]
    Overloaded,
    /// The answer is not of the form that the script replies.
    #[error("the server's answer makes no sense")]
    Protocol,
    #[error("the script failed: {0}")]
    Script(Box<str>),
}

impl StoreError {
    /// Every value of [`Self::as_str`], at its [`Self::index`].
    pub const NAMES: [&'static str; 11] = [
        "timeout",
        "io",
        "read_only",
        "loading",
        "out_of_memory",
        "moved",
        "auth",
        "busy",
        "overloaded",
        "protocol",
        "script",
    ];

    /// The place of this kind in [`Self::NAMES`].
    pub fn index(&self) -> usize {
        match self {
            Self::Timeout => 0,
            Self::Io => 1,
            Self::ReadOnly => 2,
            Self::Loading => 3,
            Self::OutOfMemory => 4,
            Self::Moved => 5,
            Self::Auth => 6,
            Self::Busy => 7,
            Self::Overloaded => 8,
            Self::Protocol => 9,
            Self::Script(_) => 10,
        }
    }

    /// The value of the `outcome` metric label.
    pub fn as_str(&self) -> &'static str {
        Self::NAMES[self.index()]
    }
}
