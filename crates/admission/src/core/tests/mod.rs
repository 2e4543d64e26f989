mod facts;
mod rules;
