//go:build linux

package wire

import (
	"net/netip"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Protocol is the version of the messages between server and supervisor. A supervisor outlives the server that started
// it, so the two may be of different releases. Adding a field that may be ignored keeps the number; anything else
// raises it, and Oldest says how far back this release still understands.
const (
	Protocol = 1
	Oldest   = 1
)

// Duration is a span of time, in nanoseconds on the wire.
type Duration time.Duration

// Hello is the first message on every connection, from the supervisor.
type Hello struct {
	Protocol int `json:"protocol"`
	Oldest   int `json:"oldest"`
	PID      int `json:"pid"`
}

// The operations of a Request.
const (
	OpRun         = "run"
	OpInterrupt   = "interrupt"
	OpAcknowledge = "acknowledge"
	OpStop        = "stop"
)

// Request asks a supervisor for one thing. A connection carries one Request and one Response.
type Request struct {
	Op    string   `json:"op"`
	Spec  *Spec    `json:"spec,omitzero"`  // run
	Call  *Call    `json:"call,omitzero"`  // run
	Calls []string `json:"calls,omitzero"` // interrupt (one), acknowledge
}

// Response answers a Request. Failure is set exactly when the request failed.
type Response struct {
	Result  *Result  `json:"result,omitzero"` // run
	Failure *Failure `json:"failure,omitzero"`
}

// The codes of a Failure.
const (
	CodeUnknown      = "outcome_unknown" // the call was started before, and what became of it is lost
	CodeAcknowledged = "acknowledged"    // the call's result was said to be in the log
	CodeUnavailable  = "unavailable"     // no sandbox can be started on this host
	CodeClosing      = "closing"         // the supervisor is ending; ask the next one
	CodeInvalid      = "invalid"         // the request makes no sense
	CodeFailed       = "failed"          // anything else, such as a full disk
)

// Failure says why a request was not done.
type Failure struct {
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	Problems []Problem `json:"problems,omitzero"`
}

func (f *Failure) Error() string { return f.Message }

// Problem is one thing that this host cannot do.
type Problem struct {
	What string `json:"what"`
	Why  string `json:"why"`
	Fix  string `json:"fix"`
}

// Call is one tool call.
type Call struct {
	ID         string         `json:"id"`
	Tool       string         `json:"tool"`
	Input      jsontext.Value `json:"input"`
	Repeatable bool           `json:"repeatable,omitzero"`
}

// Result is what the model is told of a call.
type Result struct {
	Content jsontext.Value `json:"content"`
	IsError bool           `json:"is_error"`
}

// Spec says what the sandbox must be like. Limits are never zero here.
type Spec struct {
	Network Network  `json:"network"`
	Limits  Limits   `json:"limits"`
	Uploads []Upload `json:"uploads,omitzero"`
}

// Network is the policy for connections out of the sandbox: none, limited to Allow, or unrestricted.
type Network struct {
	Mode  string   `json:"mode"`
	Allow []string `json:"allow,omitzero"`
}

// Limits bound one sandbox.
type Limits struct {
	CPUs        float64  `json:"cpus"`
	MemoryBytes int64    `json:"memory_bytes"`
	Processes   int      `json:"processes"`
	OpenFiles   int      `json:"open_files"`
	FileBytes   int64    `json:"file_bytes"`
	TmpBytes    int64    `json:"tmp_bytes"`
	Call        Duration `json:"call"`
	Idle        Duration `json:"idle"`
}

// Upload is a file of the host that the sandbox sees at Path, below /mnt/session/uploads.
type Upload struct {
	Path   string `json:"path"`
	Source string `json:"source"`
}

// SupervisorConfig is what the server tells a supervisor when it starts it.
type SupervisorConfig struct {
	Session    string         `json:"session"`
	Dir        string         `json:"dir"`
	Isolate    bool           `json:"isolate"`
	UID        int            `json:"uid"` // of the host; 0 with Isolate means a user namespace for the present user
	ServerGone Duration       `json:"server_gone"`
	Cgroups    []CgroupConfig `json:"cgroups,omitzero"`
	Reachable  []netip.Prefix `json:"reachable,omitzero"` // not public, and yet allowed
}

// CgroupConfig is one cgroup that the sandbox is put in.
type CgroupConfig struct {
	Dir         string   `json:"dir"`
	Version     int      `json:"version"`
	Controllers []string `json:"controllers"`
}

// Started is the supervisor's only message on the socket that it was started with.
type Started struct {
	Busy  bool   `json:"busy,omitzero"`  // another supervisor holds the session
	Error string `json:"error,omitzero"` // it could not start
}

// GuestConfig is the first message to the guest.
type GuestConfig struct {
	Workdir       string            `json:"workdir"`
	Results       string            `json:"results"`       // the directory for output that is too long
	ResultsHere   string            `json:"here"`          // the same directory as the agent knows it
	Scratch       string            `json:"scratch"`       // a directory of the guest's own
	AllowedRoots  []string          `json:"roots"`         // where the file tools may go beside Workdir
	ReadOnlyRoots []string          `json:"read_only"`     //
	Environment   map[string]string `json:"environment"`   //
	ProcessBytes  int64             `json:"process_bytes"` // the data of each of the shell's processes; 0 for no limit
	Processes     int               `json:"processes"`     // how many of the shell's there may be beside the guest; 0 for no limit
	Isolated      bool              `json:"isolated"`      // the guest is the first process of a pid namespace
}

// ToGuest is a message from the supervisor to the guest: exactly one field is set.
type ToGuest struct {
	Run       *GuestCall `json:"run,omitzero"`
	Interrupt string     `json:"interrupt,omitzero"`
}

// GuestCall is a call that the supervisor has recorded as started.
type GuestCall struct {
	ID    string         `json:"id"`
	Tool  string         `json:"tool"`
	Input jsontext.Value `json:"input"`
	Limit Duration       `json:"limit"`
}

// FromGuest is a message from inside: exactly one field is set, Ready in the first and Done in the others.
type FromGuest struct {
	Ready bool         `json:"ready,omitzero"`
	Done  *GuestResult `json:"done,omitzero"`
}

// GuestResult is the end of a call.
type GuestResult struct {
	ID      string `json:"id"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error"`
}
