// Package controller is a small controller as users of controller-runtime write them. It is the peer that the embedded
// API server is tested with: its suite is envtest's, and knows nothing of Evenkeel.
//
// A Greeting becomes a ConfigMap of the same name. A Greeting that is deleted leaves a ConfigMap that says farewell.
package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// groupVersion is that of Greetings.
var groupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

const (
	// manager owns the fields that the controller applies.
	manager = "greeter"
	// finalizer holds a Greeting until its farewell is written.
	finalizer = "example.com/farewell"
	// byText is the index of Greetings by their text.
	byText = "spec.text"
)

// GreetingSpec is what a user asks for.
type GreetingSpec struct {
	// Text is what is said; the webhook says "hello" where it is empty.
	Text string `json:"text,omitempty"`
	// Times is how often; the schema's default is 1.
	Times int32 `json:"times,omitempty"`
}

// GreetingStatus is what the controller has seen and done.
type GreetingStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Greeting is a text to say.
type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GreetingSpec   `json:"spec,omitempty"`
	Status            GreetingStatus `json:"status,omitempty"`
}

// DeepCopyObject makes a copy that shares nothing.
func (g *Greeting) DeepCopyObject() runtime.Object {
	made := *g
	g.ObjectMeta.DeepCopyInto(&made.ObjectMeta)
	made.Status.Conditions = append([]metav1.Condition(nil), g.Status.Conditions...)
	return &made
}

// GreetingList is several of them.
type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

// DeepCopyObject makes a copy that shares nothing.
func (l *GreetingList) DeepCopyObject() runtime.Object {
	made := *l
	l.ListMeta.DeepCopyInto(&made.ListMeta)
	made.Items = make([]Greeting, len(l.Items))
	for i := range l.Items {
		made.Items[i] = *l.Items[i].DeepCopyObject().(*Greeting)
	}
	return &made
}

// addToScheme makes the kinds known.
func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}

// greeter is the controller.
type greeter struct {
	client.Client
}

// setUp registers controller, index and webhooks.
func setUp(mgr ctrl.Manager) error {
	text := func(object client.Object) []string { return []string{object.(*Greeting).Spec.Text} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &Greeting{}, byText, text); err != nil {
		return err
	}
	hooks := ctrl.NewWebhookManagedBy(mgr, &Greeting{}).WithDefaulter(polite{}).WithValidator(polite{})
	if err := hooks.Complete(); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).For(&Greeting{}).Owns(&corev1.ConfigMap{}).Complete(&greeter{mgr.GetClient()})
}

// Reconcile makes the ConfigMap what the Greeting says.
func (g *greeter) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	greeting := &Greeting{}
	if err := g.Get(ctx, request.NamespacedName, greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !greeting.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, g.farewell(ctx, greeting)
	}
	if controllerutil.AddFinalizer(greeting, finalizer) {
		return ctrl.Result{}, g.Update(ctx, greeting)
	}
	owner := metav1apply.OwnerReference().WithAPIVersion(groupVersion.String()).WithKind("Greeting").
		WithName(greeting.Name).WithUID(greeting.UID).WithController(true).WithBlockOwnerDeletion(true)
	said := corev1apply.ConfigMap(greeting.Name, greeting.Namespace).WithOwnerReferences(owner).
		WithData(map[string]string{"text": greeting.Spec.Text, "times": fmt.Sprint(greeting.Spec.Times)})
	if err := g.Apply(ctx, said, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	before := greeting.DeepCopyObject().(*Greeting)
	greeting.Status.ObservedGeneration = greeting.Generation
	meta.SetStatusCondition(&greeting.Status.Conditions, metav1.Condition{
		Type: "Said", Status: metav1.ConditionTrue, Reason: "Written", ObservedGeneration: greeting.Generation,
	})
	return ctrl.Result{}, g.Status().Patch(ctx, greeting, client.MergeFrom(before))
}

// farewell writes the last word and lets the Greeting go.
func (g *greeter) farewell(ctx context.Context, greeting *Greeting) error {
	if !controllerutil.ContainsFinalizer(greeting, finalizer) {
		return nil
	}
	word := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: greeting.Name + "-farewell", Namespace: greeting.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, g.Client, word, func() error {
		word.Data = map[string]string{"text": "bye"}
		return nil
	})
	if err != nil {
		return err
	}
	controllerutil.RemoveFinalizer(greeting, finalizer)
	return g.Update(ctx, greeting)
}

// polite fills in and checks Greetings on their way to the API server.
type polite struct{}

// Default says hello where nothing is said.
func (polite) Default(_ context.Context, greeting *Greeting) error {
	if greeting.Spec.Text == "" {
		greeting.Spec.Text = "hello"
	}
	return nil
}

// ValidateCreate refuses what is rude, and warns of what is loud.
func (polite) ValidateCreate(_ context.Context, greeting *Greeting) (admission.Warnings, error) {
	switch greeting.Spec.Text {
	case "rude":
		return nil, fmt.Errorf("the text %q is rude", greeting.Spec.Text)
	case "LOUD":
		return admission.Warnings{"the text is loud"}, nil
	}
	return nil, nil
}

// ValidateUpdate does the same.
func (p polite) ValidateUpdate(ctx context.Context, _, greeting *Greeting) (admission.Warnings, error) {
	return p.ValidateCreate(ctx, greeting)
}

// ValidateDelete lets all go.
func (polite) ValidateDelete(context.Context, *Greeting) (admission.Warnings, error) {
	return nil, nil
}
