mod rules;
mod stock_loop;
