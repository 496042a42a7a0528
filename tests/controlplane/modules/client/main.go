// Program client does to an API server what controllers written in Go do.
//
// It takes a kubeconfig and a namespace, reads samples as JSON from its input, and prints a line
// for each task: its name and "ok", or what went wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coreapply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// sample is an object of a kind and where such objects are.
type sample struct {
	Name      string          `json:"name"`
	Path      string          `json:"path"`
	HasStatus bool            `json:"hasStatus"`
	Object    json.RawMessage `json:"object"`
}

type client struct {
	config    *rest.Config
	clients   *kubernetes.Clientset
	namespace string
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: client KUBECONFIG NAMESPACE < SAMPLES")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config.QPS = -1
	config.ContentType = protobuf
	config.AcceptContentTypes = protobuf + ",application/json"
	var samples []sample
	if err := json.NewDecoder(os.Stdin).Decode(&samples); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := &client{config, kubernetes.NewForConfigOrDie(config), os.Args[2]}
	for _, s := range samples {
		run("kind "+s.Name, func(ctx context.Context) error { return c.kind(ctx, s) })
	}
	run("informers", c.informers)
	run("leader election", c.election)
	run("server-side apply", c.apply)
	run("status", c.status)
	run("scale", c.scale)
	run("conflict", c.conflict)
	run("events", c.events)
	run("discovery", c.discovery)
	run("dynamic", c.dynamic)
	run("reviews", c.reviews)
	run("binding and eviction", c.eviction)
	run("deletecollection", c.deleteCollection)
}

func run(name string, task func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := task(ctx); err != nil {
		fmt.Printf("%s: %v\n", name, err)
		return
	}
	fmt.Printf("%s: ok\n", name)
}

// kind does what the typed client of a kind does: all verbs, with Go's own types in protobuf.
func (c *client) kind(ctx context.Context, s sample) error {
	types_ := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(types_), apiextensionsv1.AddToScheme(types_)); err != nil {
		return err
	}
	codecs := serializer.NewCodecFactory(types_)
	obj, gvk, err := codecs.UniversalDeserializer().Decode(s.Object, nil, nil)
	if err != nil {
		return err
	}
	config := rest.CopyConfig(c.config)
	gv := gvk.GroupVersion()
	config.GroupVersion, config.APIPath = &gv, "/apis"
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(types_, codecs).WithoutConversion()
	typed, err := rest.RESTClientFor(config)
	if err != nil {
		return err
	}
	fresh := func() runtime.Object {
		made, _ := types_.New(*gvk)
		return made
	}
	made := fresh()
	if err := typed.Post().AbsPath(s.Path).Body(obj).Do(ctx).Into(made); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	accessor, err := meta.Accessor(made)
	if err != nil {
		return err
	}
	path := s.Path + "/" + accessor.GetName()
	// Controllers write too, so every write is tried again.
	update := func(at string, change func(metav1.Object)) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			got := fresh()
			if err := typed.Get().AbsPath(path).Do(ctx).Into(got); err != nil {
				return err
			}
			seen, _ := meta.Accessor(got)
			change(seen)
			changed := fresh()
			return typed.Put().AbsPath(at).Body(got).Do(ctx).Into(changed)
		})
	}
	label := func(obj metav1.Object) { obj.SetLabels(map[string]string{"changed": "by-put"}) }
	if err := update(path, label); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	if s.HasStatus {
		if err := update(path+"/status", func(metav1.Object) {}); err != nil {
			return fmt.Errorf("update status: %w", err)
		}
	}
	patched := fresh()
	patch := []byte(`{"metadata":{"annotations":{"changed":"by-patch"}}}`)
	for _, form := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		if err := typed.Patch(form).AbsPath(path).Body(patch).Do(ctx).Into(patched); err != nil {
			return fmt.Errorf("%s: %w", form, err)
		}
	}
	seen, _ := meta.Accessor(patched)
	if seen.GetLabels()["changed"] != "by-put" || seen.GetAnnotations()["changed"] != "by-patch" {
		return fmt.Errorf("labels %v, annotations %v", seen.GetLabels(), seen.GetAnnotations())
	}
	watcher, err := typed.Get().AbsPath(s.Path).
		Param("watch", "1").Param("fieldSelector", "metadata.name="+accessor.GetName()).Watch(ctx)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if event.Type != watch.Added {
		return fmt.Errorf("watch: %v %v", event.Type, event.Object)
	}
	zero := int64(0)
	options := &metav1.DeleteOptions{GracePeriodSeconds: &zero}
	if err := typed.Delete().AbsPath(path).Body(options).Do(ctx).Error(); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// informers sees an object come, change and go.
func (c *client) informers(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(
		c.clients, 0, informers.WithNamespace(c.namespace))
	seen := make(chan string, 100)
	tell := func(what string, obj any) {
		if found, ok := obj.(*corev1.ConfigMap); ok && found.Name == "informed" {
			seen <- what + found.Data["a"]
		}
	}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(
		cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { tell("added ", obj) },
			UpdateFunc: func(_, obj any) { tell("updated ", obj) },
			DeleteFunc: func(obj any) { tell("deleted ", obj) },
		})
	if err != nil {
		return err
	}
	factory.Core().V1().Pods().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Coordination().V1().Leases().Informer()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v never synced", kind)
		}
	}
	maps := c.clients.CoreV1().ConfigMaps(c.namespace)
	made, err := maps.Create(ctx, configMap("informed"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Data = map[string]string{"a": "b"}
	if _, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err = maps.Delete(ctx, "informed", metav1.DeleteOptions{}); err != nil {
		return err
	}
	for _, expected := range []string{"added ", "updated b", "deleted b"} {
		select {
		case found := <-seen:
			if found != expected {
				return fmt.Errorf("%q instead of %q", found, expected)
			}
		case <-ctx.Done():
			return fmt.Errorf("never %q", expected)
		}
	}
	return nil
}

// election hands a Lease from one candidate to the next.
func (c *client) election(ctx context.Context) error {
	for _, name := range []string{"first", "second"} {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: c.namespace, Name: "elected"},
			Client:     c.clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		leading, stop := context.WithCancel(ctx)
		led := false
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
			RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					led = true
					stop()
				},
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			stop()
			return err
		}
		elector.Run(leading)
		stop()
		if !led {
			return fmt.Errorf("%s never led", name)
		}
	}
	return nil
}

// apply owns fields, and a second manager meets a conflict.
func (c *client) apply(ctx context.Context) error {
	maps := c.clients.CoreV1().ConfigMaps(c.namespace)
	wanted := func(value string) *coreapply.ConfigMapApplyConfiguration {
		return coreapply.ConfigMap("applied", c.namespace).WithData(map[string]string{"a": value})
	}
	if _, err := maps.Apply(ctx, wanted("1"), metav1.ApplyOptions{FieldManager: "one"}); err != nil {
		return err
	}
	_, err := maps.Apply(ctx, wanted("2"), metav1.ApplyOptions{FieldManager: "two"})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("no conflict: %v", err)
	}
	forced := metav1.ApplyOptions{FieldManager: "two", Force: true}
	made, err := maps.Apply(ctx, wanted("2"), forced)
	if err != nil {
		return err
	}
	if made.Data["a"] != "2" {
		return fmt.Errorf("data %v", made.Data)
	}
	extracted, err := coreapply.ExtractConfigMap(made, "two")
	if err != nil || extracted.Data["a"] != "2" {
		return fmt.Errorf("extracted %v: %v", extracted, err)
	}
	return nil
}

// status writes the two halves of objects apart.
func (c *client) status(ctx context.Context) error {
	pods := c.clients.CoreV1().Pods(c.namespace)
	if _, err := pods.Create(ctx, pod("status"), metav1.CreateOptions{}); err != nil {
		return err
	}
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		made, err := pods.Get(ctx, "status", metav1.GetOptions{})
		if err != nil {
			return err
		}
		made.Status.Phase = corev1.PodRunning
		made.Status.Conditions = append(made.Status.Conditions, corev1.PodCondition{
			Type: "tests.dev/condition", Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now(),
		})
		made.Spec.Containers[0].Image = "other"
		made, err = pods.UpdateStatus(ctx, made, metav1.UpdateOptions{})
		if err == nil && (made.Status.Phase != corev1.PodRunning ||
			made.Spec.Containers[0].Image != "busybox") {
			err = fmt.Errorf("%v, %v", made.Status.Phase, made.Spec.Containers[0].Image)
		}
		return err
	})
	if err != nil {
		return err
	}
	patch := []byte(`{"status":{"conditions":[{"type":"tests.dev/condition","status":"False"}]}}`)
	made, err := pods.Patch(
		ctx, "status", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	for _, condition := range made.Status.Conditions {
		if condition.Type == "tests.dev/condition" && condition.Status != corev1.ConditionFalse {
			return fmt.Errorf("condition %v", condition)
		}
	}
	return nil
}

func (c *client) scale(ctx context.Context) error {
	deployments := c.clients.AppsV1().Deployments(c.namespace)
	none := int32(0)
	_, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "scaled"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       pod("").Spec,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		found, err := deployments.GetScale(ctx, "scaled", metav1.GetOptions{})
		if err != nil {
			return err
		}
		found.Spec.Replicas = 2
		_, err = deployments.UpdateScale(ctx, "scaled", found, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	made, err := deployments.Get(ctx, "scaled", metav1.GetOptions{})
	if err == nil && *made.Spec.Replicas != 2 {
		err = fmt.Errorf("%d replicas", *made.Spec.Replicas)
	}
	return err
}

// conflict writes an older version of an object.
func (c *client) conflict(ctx context.Context) error {
	maps := c.clients.CoreV1().ConfigMaps(c.namespace)
	old, err := maps.Create(ctx, configMap("contended"), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	newer := old.DeepCopy()
	newer.Data = map[string]string{"a": "b"}
	if _, err = maps.Update(ctx, newer, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if _, err = maps.Update(ctx, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("no conflict: %v", err)
	}
	if _, err = maps.Create(ctx, configMap("contended"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("created twice: %v", err)
	}
	if _, err = maps.Get(ctx, "nowhere", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("found: %v", err)
	}
	return nil
}

// events records one, twice.
func (c *client) events(ctx context.Context) error {
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(
		&typedcore.EventSinkImpl{Interface: c.clients.CoreV1().Events(c.namespace)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "tests"})
	about := &corev1.ObjectReference{
		Kind: "ConfigMap", APIVersion: "v1", Namespace: c.namespace, Name: "told",
	}
	recorder.Event(about, corev1.EventTypeNormal, "Told", "once")
	recorder.Event(about, corev1.EventTypeNormal, "Told", "once")
	for ctx.Err() == nil {
		found, err := c.clients.CoreV1().Events(c.namespace).List(
			ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=told,reason=Told"})
		if err != nil {
			return err
		}
		if len(found.Items) == 1 && found.Items[0].Count == 2 {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("no event that counts two")
}

// discovery finds every resource, and maps kinds to resources.
func (c *client) discovery(context.Context) error {
	if _, err := c.clients.Discovery().ServerPreferredResources(); err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(c.clients.Discovery())
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	found, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	if err == nil && found.Resource.Resource != "deployments" {
		err = fmt.Errorf("%v", found.Resource)
	}
	return err
}

// dynamic lists without types, whole and metadata alone.
func (c *client) dynamic(ctx context.Context) error {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	whole, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return err
	}
	found, err := whole.Resource(resource).Namespace(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	partial, err := metadata.NewForConfig(c.config)
	if err != nil {
		return err
	}
	listed, err := partial.Resource(resource).Namespace(c.namespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(listed.Items) != len(found.Items) {
		err = fmt.Errorf("%d and %d", len(listed.Items), len(found.Items))
	}
	return err
}

func (c *client) reviews(ctx context.Context) error {
	seconds := int64(600)
	token, err := c.clients.CoreV1().ServiceAccounts(c.namespace).CreateToken(
		ctx, "default", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
	if err != nil || token.Status.Token == "" {
		return fmt.Errorf("token %q: %v", token.Status.Token, err)
	}
	access := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"},
		},
	}
	found, err := c.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(
		ctx, access, metav1.CreateOptions{})
	if err != nil || !found.Status.Allowed {
		return fmt.Errorf("allowed %v: %v", found.Status.Allowed, err)
	}
	_, err = c.clients.AuthenticationV1().SelfSubjectReviews().Create(
		ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// eviction binds a Pod to a node, as schedulers do, and evicts it, as a drain does.
func (c *client) eviction(ctx context.Context) error {
	pods := c.clients.CoreV1().Pods(c.namespace)
	if _, err := pods.Create(ctx, pod("evicted"), metav1.CreateOptions{}); err != nil {
		return err
	}
	err := pods.Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "evicted"},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "a-node"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	bound, err := pods.Get(ctx, "evicted", metav1.GetOptions{})
	if err != nil || bound.Spec.NodeName != "a-node" {
		return fmt.Errorf("bound to %q: %v", bound.Spec.NodeName, err)
	}
	return c.clients.PolicyV1().Evictions(c.namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: "evicted", Namespace: c.namespace},
	})
}

func (c *client) deleteCollection(ctx context.Context) error {
	maps := c.clients.CoreV1().ConfigMaps(c.namespace)
	made := configMap("collected")
	made.Labels = map[string]string{"collected": "yes"}
	if _, err := maps.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	chosen := metav1.ListOptions{LabelSelector: "collected=yes"}
	if err := maps.DeleteCollection(ctx, metav1.DeleteOptions{}, chosen); err != nil {
		return err
	}
	left, err := maps.List(ctx, chosen)
	if err == nil && len(left.Items) != 0 {
		err = fmt.Errorf("%d left", len(left.Items))
	}
	return err
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: "nobody",
			Containers:    []corev1.Container{{Name: "main", Image: "busybox"}},
		},
	}
}
