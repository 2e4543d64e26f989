package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// patience bounds every wait: machines may be busy.
const patience = 30 * time.Second

// What every test uses; TestMain makes it.
var (
	config *rest.Config
	// direct asks the server, cached asks the manager's informers.
	direct, cached client.Client
)

// TestMain starts what is tested. Where the API server comes from is envtest's own question: with
// USE_EXISTING_CLUSTER=true and KUBECONFIG it is the one named there.
func TestMain(m *testing.M) {
	code, err := suite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func suite(m *testing.M) (code int, err error) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(os.Stderr)))
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, addToScheme} {
		if err := add(known); err != nil {
			return 0, err
		}
	}
	environment := &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{
			Paths: []string{filepath.Join("config", "crd.yaml")}, ErrorIfPathMissing: true, CleanUpAfterUse: true,
		},
		WebhookInstallOptions: envtest.WebhookInstallOptions{Paths: []string{filepath.Join("config", "webhooks.yaml")}},
	}
	if config, err = environment.Start(); err != nil {
		return 0, fmt.Errorf("the environment does not start: %w", err)
	}
	defer func() {
		if stopped := environment.Stop(); err == nil {
			err = stopped
		}
	}()
	hooks := environment.WebhookInstallOptions
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:           known,
		Metrics:          server.Options{BindAddress: "0"},
		LeaderElection:   true,
		LeaderElectionID: "greeter.example.com", LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir,
		}),
	})
	if err != nil {
		return 0, err
	}
	if err := setUp(mgr); err != nil {
		return 0, err
	}
	if direct, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return 0, err
	}
	cached = mgr.GetClient()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		stop()
		if failed := <-ended; err == nil {
			err = failed
		}
	}()
	select {
	case <-mgr.Elected():
	case err := <-ended:
		ended <- nil
		return 0, fmt.Errorf("the manager ends: %w", err)
	}
	started := mgr.GetWebhookServer().StartedChecker()
	if err := waitFor(func() error { return started(nil) }); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// waitFor tries until there is no error, and returns the last one when it takes too long.
func waitFor(try func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := try()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	if err := waitFor(try); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func greeting(name, text string) *Greeting {
	return &Greeting{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: GreetingSpec{Text: text}}
}

// says is nil when the ConfigMap of that name has the text.
func says(t *testing.T, name, text string) error {
	found := &corev1.ConfigMap{}
	if err := direct.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, found); err != nil {
		return err
	}
	if found.Data["text"] != text {
		return fmt.Errorf("the ConfigMap %s says %q, not %q", name, found.Data["text"], text)
	}
	return nil
}

func TestAGreetingIsSaidAndSaidAnew(t *testing.T) {
	made := greeting("said", "good day")
	must(t, direct.Create(t.Context(), made))
	if made.Spec.Times != 1 {
		t.Fatalf("the schema's default is missing: %+v", made.Spec)
	}
	eventually(t, func() error { return says(t, "said", "good day") })
	eventually(t, func() error {
		if err := direct.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(made.Status.Conditions, "Said") || made.Status.ObservedGeneration != made.Generation {
			return fmt.Errorf("the status is behind: %+v", made)
		}
		return nil
	})
	stale := made.DeepCopyObject().(*Greeting)
	made.Spec.Text = "good night"
	must(t, direct.Update(t.Context(), made))
	eventually(t, func() error { return says(t, "said", "good night") })
	if err := direct.Update(t.Context(), stale); !apierrors.IsConflict(err) {
		t.Fatalf("a stale object was written: %v", err)
	}
	owned := &corev1.ConfigMap{}
	must(t, direct.Get(t.Context(), client.ObjectKeyFromObject(made), owned))
	if !metav1.IsControlledBy(owned, made) {
		t.Fatalf("the ConfigMap is nobody's: %+v", owned.OwnerReferences)
	}
	if len(owned.ManagedFields) != 1 || owned.ManagedFields[0].Manager != manager {
		t.Fatalf("the controller does not own its fields: %+v", owned.ManagedFields)
	}
	must(t, direct.Delete(t.Context(), owned, client.Preconditions{UID: &owned.UID}))
	eventually(t, func() error { return says(t, "said", "good night") })
}

func TestADeletedGreetingLeavesAFarewell(t *testing.T) {
	made := greeting("leaving", "hi")
	must(t, direct.Create(t.Context(), made))
	eventually(t, func() error { return says(t, "leaving", "hi") })
	must(t, direct.Delete(t.Context(), made, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	eventually(t, func() error { return says(t, "leaving-farewell", "bye") })
	// Nothing collects what it owned here, as in every envtest: it waits for the foreground deletion only where a
	// collector runs.
	eventually(t, func() error {
		err := direct.Get(t.Context(), client.ObjectKeyFromObject(made), made)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil && len(made.Finalizers) == 1 && made.Finalizers[0] == metav1.FinalizerDeleteDependents {
			return nil
		}
		return fmt.Errorf("it is still there: %v, %v", made.Finalizers, err)
	})
}

// heard collects warnings.
type heard struct{ warnings []string }

func (h *heard) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	h.warnings = append(h.warnings, text)
}

func TestWebhooksFillInWarnAndRefuse(t *testing.T) {
	silent := greeting("silent", "")
	must(t, direct.Create(t.Context(), silent))
	if silent.Spec.Text != "hello" {
		t.Fatalf("the webhook did not fill in the text: %+v", silent.Spec)
	}
	err := direct.Create(t.Context(), greeting("rude", "rude"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `the text "rude" is rude`) {
		t.Fatalf("it is not refused by the webhook: %v", err)
	}
	heard := &heard{}
	listening := rest.CopyConfig(config)
	listening.WarningHandlerWithContext = heard
	listener, err := client.New(listening, client.Options{Scheme: direct.Scheme()})
	must(t, err)
	must(t, listener.Create(t.Context(), greeting("loud", "LOUD"), client.DryRunAll))
	if len(heard.warnings) != 1 || heard.warnings[0] != "the text is loud" {
		t.Fatalf("other warnings came: %q", heard.warnings)
	}
	if err := direct.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "loud"}, &Greeting{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run left an object: %v", err)
	}
}

func TestTheSchemaIsChecked(t *testing.T) {
	long := greeting("long", strings.Repeat("x", 21))
	if err := direct.Create(t.Context(), long); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.text") {
		t.Fatalf("a long text was taken: %v", err)
	}
	fewer := greeting("fewer", "hi")
	fewer.Spec.Times = 3
	must(t, direct.Create(t.Context(), fewer))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"times":2}}`))
	err := direct.Patch(t.Context(), fewer, patch)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "times must not decrease") {
		t.Fatalf("the rule did not hold: %v", err)
	}
	strict := client.NewNamespacedClient(client.WithFieldValidation(direct, metav1.FieldValidationStrict), "default")
	unknown := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"tone":"flat"}}`))
	if err := strict.Patch(t.Context(), fewer, unknown); !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
		t.Fatalf("an unknown field was taken: %v", err)
	}
}

func TestTheCacheFollows(t *testing.T) {
	for name, text := range map[string]string{"follow-a": "yes", "follow-b": "no", "follow-c": "yes"} {
		made := greeting(name, text)
		made.Labels = map[string]string{"follow": "it"}
		must(t, direct.Create(t.Context(), made))
	}
	count := func(options ...client.ListOption) func() error {
		return func() error {
			list := &GreetingList{}
			if err := cached.List(t.Context(), list, append(options, client.InNamespace("default"))...); err != nil {
				return err
			}
			if len(list.Items) != 2 {
				return fmt.Errorf("the cache has %d Greetings, not two", len(list.Items))
			}
			return nil
		}
	}
	eventually(t, count(client.MatchingLabels{"follow": "it"}, client.MatchingFields{byText: "yes"}))
	// Pages of the server itself.
	list := &GreetingList{}
	must(t, direct.List(t.Context(), list, client.MatchingLabels{"follow": "it"}, client.Limit(2)))
	if len(list.Items) != 2 || list.Continue == "" {
		t.Fatalf("the first page has %d and continues with %q", len(list.Items), list.Continue)
	}
	must(t, direct.List(t.Context(), list, client.MatchingLabels{"follow": "it"}, client.Continue(list.Continue)))
	if len(list.Items) != 1 {
		t.Fatalf("the last page has %d", len(list.Items))
	}
	must(t, direct.DeleteAllOf(t.Context(), &Greeting{}, client.InNamespace("default"), client.MatchingLabels{"follow": "it"}))
	eventually(t, func() error {
		if err := cached.List(t.Context(), list, client.MatchingLabels{"follow": "it"}); err != nil {
			return err
		}
		if len(list.Items) != 0 {
			return fmt.Errorf("the cache still has %d", len(list.Items))
		}
		return nil
	})
}

func TestWhoMayNotIsForbidden(t *testing.T) {
	stranger := rest.CopyConfig(config)
	stranger.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	asking, err := client.New(stranger, client.Options{Scheme: direct.Scheme()})
	must(t, err)
	if err := asking.List(t.Context(), &GreetingList{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a stranger sees Greetings: %v", err)
	}
}
