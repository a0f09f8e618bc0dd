//! The part of a limit that nodes hold back for others, which may be admitting it without the
//! store.
//!
//! Guarantees that rounding never uses a part of what is held back.

/// The part of a limit that the nodes which reach the store hold back: nodes that fell silent may
/// be admitting it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    Nothing,
    /// The shares of `silent` of the `nodes` that have one, fewer than all of them.
    Shares {
        nodes: u32,
        silent: u32,
    },
    /// All nodes that have a share of the limit are silent.
    Whole,
}

/// The part of a limit that is held back, and how much longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    pub part: HeldBack,
    /// Microseconds until nothing is held back any more, if no silent node is heard of before.
    pub left_us: u64,
}

impl Reserve {
    pub const NOTHING: Self = Self {
        part: HeldBack::Nothing,
        left_us: 0,
    };
}

impl HeldBack {
    /// `charge` of the whole limit, as it is charged while this is held back: rounded up.
    pub fn charge(self, charge: u64, most: u64) -> u64 {
        match self {
            Self::Nothing | Self::Shares { .. } => self.scaled(charge),
            // More than there ever is: nothing is granted.
            Self::Whole => most.saturating_add(charge),
        }
    }

    /// `charge` for tokens that are spent already, which cannot be denied any more: of a limit that
    /// is held back whole, it is charged as it is.
    pub fn scaled(self, charge: u64) -> u64 {
        match self {
            Self::Nothing | Self::Whole => charge,
            Self::Shares { nodes, silent } => {
                let scaled =
                    (u128::from(charge) * u128::from(nodes)).div_ceil(u128::from(nodes - silent));
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        }
    }

    /// Tokens that come back and were charged while this was held back: as they were charged,
    /// rounded down.
    pub fn refund(self, charge: u64) -> u64 {
        match self {
            Self::Nothing | Self::Whole => charge,
            Self::Shares { nodes, silent } => {
                let scaled = u128::from(charge) * u128::from(nodes) / u128::from(nodes - silent);
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
        }
    }

    /// `quota` of the whole limit without what is held back: rounded down.
    pub fn quota(self, quota: u64) -> u64 {
        match self {
            Self::Nothing => quota,
            Self::Shares { nodes, silent } => {
                let left = u128::from(quota) * u128::from(nodes - silent) / u128::from(nodes);
                u64::try_from(left).unwrap_or(u64::MAX)
            }
            Self::Whole => 0,
        }
    }
}
