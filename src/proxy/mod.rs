//! A request to an upstream and its response back.
