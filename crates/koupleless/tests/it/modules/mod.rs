//! Modules as containers, on fake bases that answer as real ones do.

mod defects;
mod hung;
mod input;
mod lifecycle;
mod misfortune;
mod sharing;
mod traces;
mod world;
