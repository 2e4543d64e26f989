package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/randfill"
)

// encoded is one object in both encodings.
type encoded struct {
	JSON  json.RawMessage `json:"json"`
	Proto []byte          `json:"proto"`
}

// objects prints random objects of every kind that client-go knows, and of those that define custom resources and APIs,
// as Kubernetes encodes them in JSON and in protobuf: one JSON object a line.
func objects(args []string) int {
	flags := flag.NewFlagSet("clientgo objects", flag.ContinueOnError)
	seed := flags.Int64("seed", 1, "where the random numbers begin")
	count := flags.Int("count", 3, "`number` of objects of each kind")
	if err := flags.Parse(args); err != nil {
		return refuse(err)
	}
	out := bufio.NewWriter(os.Stdout)
	err := printObjects(out, *seed, *count)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "clientgo:", err)
		return exitLost
	}
	return exitStopped
}

func printObjects(out io.Writer, seed int64, count int) error {
	known := scheme.Scheme
	for _, add := range []func(*runtime.Scheme) error{
		apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		if err := add(known); err != nil {
			return err
		}
	}
	var kinds []schema.GroupVersionKind
	for kind := range known.AllKnownTypes() {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	codec := protobuf.NewSerializer(known, known)
	lines := json.NewEncoder(out)
	for _, kind := range kinds {
		made, err := known.New(kind)
		_, marshals := made.(runtime.ProtobufMarshaller)
		if err != nil || !marshals || kind.Kind == "WatchEvent" {
			continue
		}
		fill := filler(rand.New(rand.NewSource(seed)))
		for range count {
			object := reflect.New(reflect.TypeOf(made).Elem()).Interface().(runtime.Object)
			fill.Fill(object)
			line, err := encode(codec, object, kind)
			if err != nil {
				return fmt.Errorf("%s: %w", kind, err)
			}
			if err := lines.Encode(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode sends an object through protobuf first, which does not tell an empty list from none.
func encode(codec runtime.Serializer, object runtime.Object, kind schema.GroupVersionKind) (encoded, error) {
	object.GetObjectKind().SetGroupVersionKind(kind)
	first, err := runtime.Encode(codec, object)
	if err != nil {
		return encoded{}, err
	}
	read, _, err := codec.Decode(first, nil, nil)
	if err != nil {
		return encoded{}, err
	}
	read.GetObjectKind().SetGroupVersionKind(kind)
	proto, err := runtime.Encode(codec, read)
	if err != nil {
		return encoded{}, err
	}
	text, err := json.Marshal(read)
	return encoded{JSON: text, Proto: proto}, err
}

// second is never the zero time, which JSON does not tell from none where a pointer is in between.
func second(c randfill.Continue) metav1.Time {
	return metav1.Unix(c.Int63n(1<<33)-1<<31, 0)
}

func micro(c randfill.Continue) metav1.MicroTime {
	return metav1.MicroTime{Time: second(c).Add(time.Duration(c.Intn(1_000_000)) * time.Microsecond)}
}

// filler makes values that JSON can carry: behind a pointer there is no null, and no list of bytes is empty. Raw JSON has its members in alphabetical order.
func filler(source *rand.Rand) *randfill.Filler {
	depth := 0
	return randfill.New().NilChance(.3).NumElements(0, 3).MaxDepth(30).RandSource(source).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			formats := []resource.Format{resource.DecimalSI, resource.BinarySI, resource.DecimalExponent}
			*q = *resource.NewMilliQuantity(c.Int63n(1<<40), formats[c.Intn(3)])
		},
		func(t *metav1.Time, c randfill.Continue) {
			if c.Intn(4) > 0 {
				*t = second(c)
			}
		},
		func(t **metav1.Time, c randfill.Continue) {
			if c.Intn(4) > 0 {
				*t = new(second(c))
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			if c.Intn(4) > 0 {
				*t = micro(c)
			}
		},
		func(t **metav1.MicroTime, c randfill.Continue) {
			if c.Intn(4) > 0 {
				*t = new(micro(c))
			}
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			if c.Bool() {
				*v = intstr.FromInt32(int32(c.Uint32()))
			} else {
				*v = intstr.FromString(c.String(8))
			}
		},
		// Not every parser of JSON reads the last of many digits.
		func(f *float64, c randfill.Continue) { *f = float64(c.Intn(1<<20)) / 64 },
		func(m *runtime.TypeMeta, _ randfill.Continue) { *m = runtime.TypeMeta{} },
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} },
		func(bytes *[]byte, c randfill.Continue) {
			if c.Bool() {
				*bytes = []byte(c.String(0) + "\x00\xff")
			}
		},
		func(raw *runtime.RawExtension, _ randfill.Continue) {
			raw.Raw = []byte(`{"a":[1,-2.5,null],"kind":"Other"}`)
		},
		func(fields *metav1.FieldsV1, _ randfill.Continue) {
			fields.Raw = []byte(`{"f:metadata":{"f:name":{}}}`)
		},
		func(raw *apiextensionsv1.JSON, c randfill.Continue) {
			raw.Raw = []byte([]string{`"text"`, `{"a":{"b":[true]}}`, `7`}[c.Intn(3)])
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrBool, c randfill.Continue) {
			if either.Allows = c.Bool(); either.Allows && c.Bool() {
				either.Schema = &apiextensionsv1.JSONSchemaProps{}
				c.Fill(either.Schema)
			}
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrArray, c randfill.Continue) {
			if c.Bool() {
				either.Schema = &apiextensionsv1.JSONSchemaProps{}
				c.Fill(either.Schema)
			} else {
				either.JSONSchemas = make([]apiextensionsv1.JSONSchemaProps, 2)
				c.Fill(&either.JSONSchemas[1])
			}
		},
		func(either *apiextensionsv1.JSONSchemaPropsOrStringArray, c randfill.Continue) {
			if c.Bool() {
				either.Schema = &apiextensionsv1.JSONSchemaProps{}
				c.Fill(either.Schema)
			} else {
				either.Property = []string{c.String(8), c.String(0)}
			}
		},
		// A schema of schemas of schemas grows beyond all measure.
		func(props *apiextensionsv1.JSONSchemaProps, c randfill.Continue) {
			depth++
			defer func() { depth-- }()
			if depth > 2 {
				props.ID, props.Format, props.Nullable = c.String(8), c.String(8), c.Bool()
				return
			}
			c.FillNoCustom(props)
		},
	)
}
