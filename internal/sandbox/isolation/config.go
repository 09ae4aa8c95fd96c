//go:build linux

// Package isolation builds the sandbox: a process in namespaces of its own, with a root of its own, without capabilities,
// behind a system call filter.
//
// Start forks the *builder*, the same binary in fresh namespaces. While it still has the privileges for it, the builder
// makes the mounts, brings up loopback, drops every privilege and then becomes the guest by exec, which makes all of that
// irrevocable for everything that runs inside. The builder is trusted and has its own socket, which the exec closes: what
// it says cannot come from the agent.
//
// A server that runs as root uses no user namespace: the sandbox becomes the session's own user of the host. Any other
// uses a user namespace that maps the server's user. In neither case can user 0 of the host be inside, because files such
// as /proc/sys/kernel/core_pattern belong to it whatever else is taken away.
//
// Everything dies with the sandbox: it is the first process of a pid namespace, it is killed when the thread that forked
// it ends (which is why a Spawner never lets go of its thread), and the guest leaves when its socket is closed.
package isolation

// Config is what the builder is told.
type Config struct {
	// Root is an existing empty directory; nothing that is bound may lie below it.
	Root string `json:"root"`
	// UID is the user of the host to become; 0 says that Start made a user namespace.
	UID         int      `json:"uid"`
	Binds       []Bind   `json:"binds"`
	TmpBytes    int64    `json:"tmp_bytes"`
	Rlimits     []Rlimit `json:"rlimits"`
	Egress      bool     `json:"egress"` // listen on ProxyAddress and hand the listener to the supervisor
	Arguments   []string `json:"arguments"`
	Environment []string `json:"environment"`
	Workdir     string   `json:"workdir"`
}

// Bind shows a directory of the host inside, without set-user-id programs and devices.
type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Writable bool   `json:"writable"`
}

// Rlimit is a limit of each process.
type Rlimit struct {
	Resource int    `json:"resource"`
	Value    uint64 `json:"value"`
}

// The name that the sandbox's user has inside, whatever its number, and where its own things are.
const (
	User         = "agent"
	Home         = "/home/agent"
	Scratch      = "/run/perdure"
	ProxyAddress = "127.0.0.1:3128"
	insideUID    = 1000 // in a user namespace
)

// BuilderRole is the first argument of the builder's command line.
const BuilderRole = "perdure-sandbox-builder"

// The descriptors of the builder. The guest keeps only the first.
const (
	GuestSocket   = 3
	builderSocket = 4
)

// Failure is a step of building that failed.
type Failure struct {
	Step  string `json:"step"`
	Errno int    `json:"errno"`
	Text  string `json:"text"`
}

func (f *Failure) Error() string { return "build the sandbox: " + f.Step + ": " + f.Text }

// report is the builder's only message: a failure, or the listener as a descriptor beside it.
type report struct {
	Failure *Failure `json:"failure,omitzero"`
	Egress  bool     `json:"egress,omitzero"`
}
