//! What is measured.

/// One row of the table.
pub(super) struct Row {
    /// Names it in files and on the command line.
    pub(super) name: &'static str,
    /// For the reader of the table.
    pub(super) what: &'static str,
    /// A file of `interop/kubernetes/scenarios`, or a built-in scenario.
    pub(super) scenario: &'static str,
    /// Whether Evenkeel is installed there, with its agents and controllers as pods; otherwise the lab starts
    /// them.
    pub(super) installed: bool,
    pub(super) runs: usize,
    /// The scenario that is played without Evenkeel, and how often; or the row that shows what Kubernetes
    /// does.
    pub(super) stock: Stock,
    /// Most seconds for half of the runs, and for 99 of 100.
    pub(super) goals: &'static [(&'static str, f64, f64)],
}

pub(super) enum Stock {
    Played(&'static str, usize),
    As(&'static str),
}

pub(super) const ROWS: [Row; 17] = [
    Row {
        name: "cut",
        what: "A node's cloud link is cut for 420 s",
        scenario: "cut",
        installed: false,
        runs: 1,
        stock: Stock::Played("cut", 1),
        goals: &[],
    },
    Row {
        name: "power-off",
        what: "A machine loses its power, edge profile",
        scenario: "power-off",
        installed: false,
        runs: 30,
        stock: Stock::Played("power-off-stock", 3),
        goals: &[
            ("endpoints out", 4.0, 6.0),
            ("Deployment pods ready elsewhere", 20.0, 25.0),
        ],
    },
    Row {
        name: "power-off-builtin",
        what: "The same, built-in profile",
        scenario: "power-off-builtin",
        installed: false,
        runs: 5,
        stock: Stock::As("power-off"),
        goals: &[],
    },
    Row {
        name: "api-restart",
        what: "A node is cut off, and the API server is down for 6 s and for 30 s, the controller manager dying with it and not",
        scenario: "api-restart",
        installed: false,
        runs: 1,
        stock: Stock::Played("api-restart", 1),
        goals: &[],
    },
    Row {
        name: "controller-killed",
        what: "A node is cut off, and the only controller is killed before and after Kubernetes' own mark",
        scenario: "controller-killed",
        installed: false,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "controllers-killed",
        what: "The same with two controllers: the leader is killed",
        scenario: "controllers-killed",
        installed: false,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "restart-at-mark",
        what: "The same, and the only controller is down while Kubernetes marks the node and its pods",
        scenario: "restart-at-mark",
        installed: false,
        runs: 3,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "agents-dead",
        what: "Two of five agents are dead, then a third machine loses its power: no majority can convict it",
        scenario: "agents-dead",
        installed: false,
        runs: 1,
        stock: Stock::As("power-off"),
        goals: &[],
    },
    Row {
        name: "zone-cut",
        what: "A whole zone of four is cut off for 400 s with one healthy node outside; some pods tolerate 30 s only",
        scenario: "zone-cut",
        installed: false,
        runs: 1,
        stock: Stock::Played("zone-cut", 1),
        goals: &[],
    },
    Row {
        name: "split",
        what: "The LAN breaks in two, 3\\|2, for 10 minutes",
        scenario: "split",
        installed: false,
        runs: 1,
        stock: Stock::Played("split", 1),
        goals: &[],
    },
    Row {
        name: "stall",
        what: "A machine that is cut off stands still for 8 s",
        scenario: "stall",
        installed: false,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "no-majority",
        what: "Three of five machines lose their power, and one returns while the zone has no majority",
        scenario: "no-majority",
        installed: false,
        runs: 1,
        stock: Stock::Played("no-majority", 1),
        goals: &[],
    },
    Row {
        name: "killed-in-turn",
        what: "A node is cut off, and each process of Evenkeel gets `kill -9` in turn",
        scenario: "killed-in-turn",
        installed: false,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "tour",
        what: "The tour: a cut for 60 s, then a machine without power",
        scenario: "tour",
        installed: false,
        runs: 1,
        stock: Stock::As("power-off"),
        goals: &[],
    },
    Row {
        name: "cut-installed",
        what: "`evenkeel install`, then as in `cut`",
        scenario: "cut",
        installed: true,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
    Row {
        name: "power-off-installed",
        what: "`evenkeel install`, then as in `power-off`",
        scenario: "power-off",
        installed: true,
        runs: 5,
        stock: Stock::As("power-off"),
        goals: &[],
    },
    Row {
        name: "killed-in-turn-installed",
        what: "`evenkeel install`, then as in `killed-in-turn`",
        scenario: "killed-in-turn",
        installed: true,
        runs: 1,
        stock: Stock::As("cut"),
        goals: &[],
    },
];
