package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Namespace is where everything is applied.
const Namespace = "default"

// volumes is how many persistent volumes there are: folders of this machine, bound when a pod first needs one.
const volumes = 16

func (r *Rig) storage(ctx context.Context, _ Config) error {
	const class = "local"
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	_, err := r.Client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: class, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &wait,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range volumes {
		name := fmt.Sprintf("volume-%d", i)
		dir := filepath.Join(r.dir, "volumes", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		_, err := r.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: dir}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{nodeName}}},
				}}}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// Claim makes a claim with a volume of its own, bound to it, and returns the folder of this machine that the volume is.
func (r *Rig) Claim(ctx context.Context, name string) (dir string, err error) {
	dir = filepath.Join(r.dir, "volumes", name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	class, size := "", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err = r.Client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = r.Client.CoreV1().PersistentVolumeClaims(Namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class, VolumeName: name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	return dir, err
}

// Apply builds a folder with kustomize and applies the objects on the server's side, as `kubectl apply -k --server-side` does. edit
// may change an object's JSON; nil leaves all as they are.
func (r *Rig) Apply(ctx context.Context, folder string, edit func([]byte) []byte) error {
	options := krusty.MakeDefaultOptions()
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return err
	}
	var all [][]byte
	for _, res := range built.Resources() {
		data, err := res.MarshalJSON()
		if err != nil {
			return err
		}
		if edit != nil {
			data = edit(data)
		}
		all = append(all, data)
	}
	return r.ApplyObjects(ctx, all)
}

// ApplyObjects applies objects in JSON on the server's side.
func (r *Rig) ApplyObjects(ctx context.Context, all [][]byte) error {
	objects, err := dynamic.NewForConfig(r.REST)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(r.Client.Discovery()))
	for _, data := range all {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return err
		}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		force := true
		_, err = objects.Resource(mapping.Resource).Namespace(Namespace).Patch(ctx, object.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: "k8s-test", Force: &force, FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return nil
}

// Exec runs a command in a pod's container and returns what it printed.
func (r *Rig) Exec(ctx context.Context, pod, container string, command ...string) (string, error) {
	request := r.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(Namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(r.REST, "POST", request.URL())
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		return out.String(), fmt.Errorf("%s in %s: %w: %s", command, pod, err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.String(), nil
}

// Ready waits until a StatefulSet's newest pods, as many as it wants, are ready.
func (r *Rig) Ready(ctx context.Context, set string, limit time.Duration) error {
	return r.await(ctx, limit, func(ctx context.Context) error {
		s, err := r.Client.AppsV1().StatefulSets(Namespace).Get(ctx, set, metav1.GetOptions{})
		if err != nil {
			return err
		}
		st, want := s.Status, *s.Spec.Replicas
		if st.ObservedGeneration < s.Generation || st.UpdatedReplicas != want || st.ReadyReplicas != want || st.AvailableReplicas != want || st.Replicas != want || st.CurrentRevision != st.UpdateRevision {
			return fmt.Errorf("%d of %d pods are ready, %d updated", st.ReadyReplicas, want, st.UpdatedReplicas)
		}
		return nil
	})
}

// Until waits for check.
func (r *Rig) Until(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	return r.await(ctx, limit, check)
}

// Report writes what helps to understand a failure into the rig's folder: pods, events, and the pods' logs.
func (r *Rig) Report(ctx context.Context) error {
	var out bytes.Buffer
	list, err := r.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		fmt.Fprintf(&out, "pod %s %s %s\n", p.Name, p.Status.Phase, p.Status.PodIP)
		for _, c := range p.Status.ContainerStatuses {
			fmt.Fprintf(&out, "  %s ready %t restarts %d %+v last %+v\n", c.Name, c.Ready, c.RestartCount, c.State, c.LastTerminationState)
		}
		for _, previous := range []bool{true, false} {
			text, err := r.Client.CoreV1().Pods(Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Previous: previous}).DoRaw(ctx)
			if err == nil {
				err = r.write(fmt.Sprintf("log/pod-%s-previous-%t.log", p.Name, previous), string(text))
			}
			if err != nil && !previous {
				fmt.Fprintf(&out, "  log: %v\n", err)
			}
		}
	}
	events, err := r.Client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, e := range events.Items {
		fmt.Fprintf(&out, "%s %s %s/%s %s %s\n", e.LastTimestamp.Format(time.TimeOnly), e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	return errors.Join(r.write("log/report.txt", out.String()))
}

// Logs returns what a pod's container has printed since its start.
func (r *Rig) Logs(ctx context.Context, pod string) (string, error) {
	text, err := r.Client.CoreV1().Pods(Namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	return string(text), err
}

// UIDs returns the identity of each pod by its name.
func (r *Rig) UIDs(ctx context.Context) (map[string]types.UID, error) {
	list, err := r.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	uids := map[string]types.UID{}
	for _, p := range list.Items {
		uids[p.Name] = p.UID
	}
	return uids, nil
}

// RemovePods deletes all pods and waits until the kubelet has ended them, so that their control groups are empty.
func (r *Rig) RemovePods(ctx context.Context) error {
	now := int64(0)
	err := r.Client.AppsV1().StatefulSets(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	err = errors.Join(err, r.Client.CoreV1().Pods(Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	return errors.Join(err, r.await(ctx, time.Minute, func(context.Context) error {
		out, err := exec.Command("ctr", "-a", r.socket(), "-n", "k8s.io", "tasks", "ls", "-q").Output()
		if err == nil && len(bytes.TrimSpace(out)) > 0 {
			err = errors.New("containers are still running")
		}
		return err
	}))
}
