//! The table of rules. A code is never used for another rule, even after its own is gone.

use super::{Check, Severity, budget, handler, lifecycle, misplaced_annotation};

/// One rule of the lint, with its code and its text.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its stable code, as in `EK-P001`.
    pub code: &'static str,
    /// How bad what it finds is.
    pub severity: Severity,
    /// What it finds, in a line.
    pub title: &'static str,
    /// Why it bites.
    pub why: &'static str,
    /// What to do.
    pub fix: &'static str,
    pub(super) check: Check,
}

const fn rule(
    code: &'static str,
    severity: Severity,
    title: &'static str,
    why: &'static str,
    fix: &'static str,
    check: Check,
) -> Rule {
    Rule {
        code,
        severity,
        title,
        why,
        fix,
        check,
    }
}

pub(super) const UNREADABLE: Rule = rule(
    "EK-P001",
    Severity::Error,
    "The pod cannot be probed",
    "Neither an API server nor a prober accepts the pod as it is; the other rules look at it once it can be read.",
    "Change the field as the message says.",
    Check::Reader,
);

pub(super) const ANNOTATION: Rule = rule(
    "EK-P002",
    Severity::Error,
    "The annotation evenkeel.io/probes cannot be used",
    "Strict mode refuses a pod whose annotation it does not fully understand, rather than probe with other settings than those written down.",
    "Change the setting as the message says, or remove it.",
    Check::Reader,
);

use Severity::{Error, Info, Warning};

/// All rules, by code.
pub const RULES: &[Rule] = &[
    UNREADABLE,
    ANNOTATION,
    rule(
        "EK-P003",
        Warning,
        "The annotation evenkeel.io/probes is on the workload instead of its template",
        "Pods get the annotations of the template, not those of the object that makes them.",
        "Move the annotation to the pod template's metadata.",
        Check::Pod(misplaced_annotation),
    ),
    rule(
        "EK-P004",
        Error,
        "The probe names a port that the container does not have",
        "Kubernetes accepts the name, but every attempt ends in an error, and errors count as nothing: the container never gets ready, and is never restarted.",
        "Name a port of the same container, or give its number.",
        Check::Probe(handler::unknown_port),
    ),
    rule(
        "EK-P005",
        Info,
        "The probe asks a port that the container does not declare",
        "Declaring ports is optional, but a number that is declared nowhere is often a typo or a leftover.",
        "Declare the port, or correct the number.",
        Check::Probe(handler::undeclared_port),
    ),
    rule(
        "EK-P006",
        Warning,
        "The probe asks the node instead of the pod",
        "The kubelet probes from the node, so localhost is the node, where another process may answer, or none.",
        "Remove host, so that the pod's own address is asked; use exec for what listens on the pod's loopback alone.",
        Check::Probe(handler::node_host),
    ),
    rule(
        "EK-P007",
        Info,
        "The probe asks another host than the pod",
        "The answer of another host says little about this container, and its failure restarts or withdraws all replicas at once.",
        "Remove host; for a virtual host, set the header Host instead.",
        Check::Probe(handler::other_host),
    ),
    rule(
        "EK-P008",
        Info,
        "The certificate of an HTTPS probe is not verified",
        "The kubelet accepts any certificate for any name, so an expired one is not noticed.",
        "Watch certificates elsewhere, or use strict mode with tls.verify.",
        Check::Probe(handler::unverified),
    ),
    rule(
        "EK-P009",
        Warning,
        "A secret stands in the headers of a probe",
        "Whoever may read the pod may read it, and it travels to the container in each probe.",
        "Give the probe a path that needs no credentials.",
        Check::Probe(handler::secret_header),
    ),
    rule(
        "EK-P010",
        Info,
        "The gRPC probe speaks plaintext",
        "The kubelet asks over HTTP/2 without TLS, so a server that has only TLS on this port fails each probe.",
        "Serve health on a plaintext port, or use strict mode with grpcTLS.",
        Check::Probe(handler::plaintext_grpc),
    ),
    rule(
        "EK-P011",
        Info,
        "The probe asks the root path",
        "A root path often redirects to a page for people; a redirect to another host ends the probe as a success with a warning, whatever that host says.",
        "Give the application a path of its own for health, without redirects.",
        Check::Probe(handler::root_path),
    ),
    rule(
        "EK-P012",
        Warning,
        "Liveness only opens a connection",
        "The kernel accepts connections for a process that hangs, so such a probe does not see what a restart would cure.",
        "Use httpGet, grpc or exec for liveness, or leave liveness out.",
        Check::Probe(handler::tcp_liveness),
    ),
    rule(
        "EK-P013",
        Info,
        "Liveness looks as if it checks dependencies",
        "When a dependency is away, all replicas are restarted at once, which does not bring it back and adds load when it returns.",
        "Let liveness answer for the process alone, and readiness for its dependencies.",
        Check::Probe(handler::dependencies),
    ),
    rule(
        "EK-P014",
        Info,
        "The command is a shell script of several steps",
        "Only the exit code of the last step counts, and what the shell has started may survive a timeout.",
        "Run one program, or end each step with || exit 1 and start the last with exec.",
        Check::Probe(handler::shell_steps),
    ),
    rule(
        "EK-P015",
        Warning,
        "The command uses a variable that is empty in probes",
        "In the command of a probe $(NAME) is replaced by literal values of env alone; a value from elsewhere becomes an empty text.",
        "Let a shell in the container expand it: sh -c 'tool \"$NAME\"'.",
        Check::Probe(handler::empty_variable),
    ),
    rule(
        "EK-P016",
        Warning,
        "A command runs often",
        "Each run starts a process inside the container through the runtime, which costs milliseconds of CPU and counts against the container's limits.",
        "Use a period of at least 10 s, or httpGet, tcpSocket or grpc.",
        Check::Probe(budget::frequent_exec),
    ),
    rule(
        "EK-P017",
        Info,
        "The replicas start many probe processes",
        "The cost of commands grows with the replicas, and nobody sees it in the application's own profile.",
        "Use longer periods, or httpGet, tcpSocket or grpc.",
        Check::Pod(budget::exec_load),
    ),
    rule(
        "EK-P018",
        Warning,
        "The timeout is longer than the period",
        "Probes of one container do not overlap: a slow answer delays the next probe, so failures are found later than the period says.",
        "Make the timeout at most the period.",
        Check::Probe(budget::slow_timeout),
    ),
    rule(
        "EK-P019",
        Warning,
        "Liveness is as quick as readiness",
        "An overloaded container should first lose its traffic, and only be restarted if that does not help; with the same probe, both happen at once.",
        "Give liveness a higher failureThreshold or period than readiness, or another handler.",
        Check::Container(budget::same_probe),
    ),
    rule(
        "EK-P020",
        Warning,
        "Liveness waits long instead of a startup probe",
        "Every restart waits for the whole delay before a hang is noticed, and a start slower than the delay is killed over and over.",
        "Use a startupProbe with failureThreshold x periodSeconds above the slowest start, and drop initialDelaySeconds.",
        Check::Container(budget::long_delay),
    ),
    rule(
        "EK-P021",
        Warning,
        "The startup probe gives up before liveness would begin",
        "The delay of liveness says how long a start may take; the startup probe kills the container sooner.",
        "Raise the startup probe's failureThreshold, and drop the liveness probe's initialDelaySeconds.",
        Check::Container(budget::short_startup),
    ),
    rule(
        "EK-P022",
        Warning,
        "One pause is enough for a restart",
        "A garbage collection, a throttled CPU or a busy disk stalls a healthy process for seconds.",
        "Let liveness fail only after 10 s or more: failureThreshold of at least 3, with a timeout above 1 s.",
        Check::Probe(budget::hasty_liveness),
    ),
    rule(
        "EK-P023",
        Warning,
        "Readiness notices failures late",
        "Until then, clients are sent to a container that does not answer.",
        "Keep failureThreshold x periodSeconds below a minute.",
        Check::Probe(budget::late_readiness),
    ),
    rule(
        "EK-P024",
        Info,
        "Readiness returns late",
        "After one bad phase all replicas stay out of service until they have succeeded this often, even if it was only a moment.",
        "Use successThreshold 1 unless the application flaps.",
        Check::Probe(budget::slow_return),
    ),
    rule(
        "EK-P025",
        Info,
        "The first probe may come much later than the delay",
        "The kubelet probes at the first tick after the delay, so up to a whole period may be added to it.",
        "Use a short period with a startupProbe, or strict mode, which probes exactly after the delay.",
        Check::Probe(budget::jitter),
    ),
    rule(
        "EK-P026",
        Info,
        "Ports without a readiness probe",
        "Services send traffic as soon as the process runs, before it listens, and keep sending while it hangs.",
        "Add a readinessProbe.",
        Check::Container(lifecycle::no_readiness),
    ),
    rule(
        "EK-P027",
        Info,
        "Liveness without readiness",
        "The only answer to trouble is then a restart; nothing takes the container out of service first, and rollouts do not wait for it.",
        "Add a readinessProbe, or leave liveness out.",
        Check::Container(lifecycle::liveness_alone),
    ),
    rule(
        "EK-P028",
        Info,
        "A sidecar without readiness or startup probe",
        "The containers after a sidecar start as soon as its process runs, whether or not it serves already.",
        "Add a startupProbe to hold the others back, and a readinessProbe if the pod is of no use without the sidecar.",
        Check::Container(lifecycle::bare_sidecar),
    ),
    rule(
        "EK-P029",
        Warning,
        "A failed probe grants more time to die than the pod has",
        "A container that hangs gets longer to end than a healthy one that is told to; the outage lasts that much longer.",
        "Make the probe's terminationGracePeriodSeconds shorter than the pod's.",
        Check::Probe(lifecycle::long_grace),
    ),
    rule(
        "EK-P030",
        Warning,
        "preStop leaves no time to end",
        "The hook runs within the grace period; what is left of it, at least 2 s, is all that the process gets between SIGTERM and SIGKILL.",
        "Make the pod's terminationGracePeriodSeconds longer than preStop and the shutdown together.",
        Check::Container(lifecycle::long_pre_stop),
    ),
    rule(
        "EK-P031",
        Warning,
        "A failed probe ends the container for good",
        "With restartPolicy Never a container that fails liveness or startup is killed and stays dead; the pod fails.",
        "Leave the probe out, or use restartPolicy OnFailure.",
        Check::Probe(lifecycle::never_restarted),
    ),
];
