//! Cores that come and go.
