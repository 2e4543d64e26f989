//! Label and field selectors.

mod field;
mod label;
#[cfg(test)]
mod tests;

pub use field::FieldSelector;
pub use label::LabelSelector;
