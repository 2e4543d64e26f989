package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// change is a line of standard output: what an informer told of a ConfigMap, or "synced" when it has told of all that
// were there.
type change struct {
	Event string `json:"event"`
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

// informer prints what client-go's shared informer tells of the ConfigMaps of a namespace that have the label
// informed=yes, until SIGTERM or SIGINT. Whether it lists or streams is client-go's feature WatchListClient, which the
// variable KUBE_FEATURE_WatchListClient sets.
func informer(args []string) int {
	flags := flag.NewFlagSet("clientgo informer", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig `file` of the API server")
	namespace := flags.String("namespace", "default", "namespace of the ConfigMaps")
	media := flags.String("media", "application/json", "media type of requests and answers")
	if err := flags.Parse(args); err != nil {
		return refuse(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return refuse(fmt.Errorf("--kubeconfig %s: %w", *kubeconfig, err))
	}
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = *media
	config.AcceptContentTypes = *media
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return refuse(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := inform(ctx, client, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "clientgo:", err)
		return exitLost
	}
	return exitStopped
}

func inform(ctx context.Context, client rest.Interface, namespace string) error {
	labelled := func(options *metav1.ListOptions) { options.LabelSelector = "informed=yes" }
	source := cache.NewFilteredListWatchFromClient(client, "configmaps", namespace, labelled)
	informer := cache.NewSharedIndexInformer(source, &corev1.ConfigMap{}, 0, cache.Indexers{})
	// One line at a time, whoever tells.
	var mutex sync.Mutex
	lines := json.NewEncoder(os.Stdout)
	tell := func(event string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		found, ok := object.(*corev1.ConfigMap)
		if !ok {
			found = &corev1.ConfigMap{}
		}
		mutex.Lock()
		defer mutex.Unlock()
		// Nobody to tell when nobody reads.
		_ = lines.Encode(change{Event: event, Name: found.Name, Value: found.Data["k"]})
	}
	registered, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { tell("added", object) },
		UpdateFunc: func(old, object any) {
			// A new list tells of all objects again.
			if old.(*corev1.ConfigMap).ResourceVersion != object.(*corev1.ConfigMap).ResourceVersion {
				tell("updated", object)
			}
		},
		DeleteFunc: func(object any) { tell("deleted", object) },
	}, cache.HandlerOptions{})
	if err != nil {
		return err
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
			tell("synced", nil)
		}
	}()
	informer.RunWithContext(ctx)
	return nil
}
