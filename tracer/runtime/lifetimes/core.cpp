// The parts of tracer/runtime/lifetimes/tracker.py that run for every storage of every call. The events are the same
// and are described there. `Core` implements Tracker, `Life` implements Life, `Observer` implements Tracker.observer.
#include <Python.h>

#include <stddef.h>
#include <string.h>
#include <structmember.h>  // members of types, before Python 3.12
#include <time.h>

#include <initializer_list>
#include <unordered_map>
#include <vector>

namespace {

using Number = long long;

class Ref {  // an owned reference
 public:
  explicit Ref(PyObject* object = nullptr) : object_(object) {}
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void take(PyObject* object) {
    PyObject* before = object_;
    object_ = object;
    Py_XDECREF(before);
  }

 private:
  PyObject* object_;
};

PyObject* share(void* object) {
  Py_INCREF(static_cast<PyObject*>(object));
  return static_cast<PyObject*>(object);
}

PyTypeObject core_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject life_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject observer_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject weak_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyObject *s_data_ptr, *s_nbytes, *s_numel, *s_untyped_storage, *s_device;
Number recent_steps = 0;

// The type GraphCall, and the offsets of members that are read directly from its __slots__.
struct {
  PyObject* type;
  Py_ssize_t number, life, rows, parent, step;
} calls;

PyObject* member(PyObject* call, Py_ssize_t offset) {
  return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(call) + offset);
}

// Numbers names and devices, which events contain as numbers.
struct Words {
  std::vector<PyObject*> texts;
  std::vector<std::vector<Number>> members;  // of a list with that name: name[0], name[1], ...
  PyObject* numbers = nullptr;               // dict: text, or device -> number

  Number of(PyObject* key, PyObject* text) {
    if (PyObject* known = PyDict_GetItemWithError(numbers, key)) return PyLong_AsLongLong(known);
    if (PyErr_Occurred()) return -1;
    Ref number(PyLong_FromSize_t(texts.size()));
    if (!number || PyDict_SetItem(numbers, key, number.get()) < 0) return -1;
    texts.push_back(share(text));
    members.emplace_back();
    return static_cast<Number>(texts.size()) - 1;
  }

  Number member_of(Number name, Py_ssize_t at) {
    while (static_cast<Py_ssize_t>(members[name].size()) <= at) {
      Ref text(PyUnicode_FromFormat("%U[%zd]", texts[name], static_cast<Py_ssize_t>(members[name].size())));
      Number number = text ? of(text.get(), text.get()) : -1;
      if (number < 0) return -1;
      members[name].push_back(number);
    }
    return members[name][at];
  }
} words;

// The event of a storage point is (point, rows, entries, entry ...), that of a death (-1 - index, rows). An entry:
enum Entry : Number {
  NOTHING,   // no storage, or one that this call has seen before
  NEW,       // bytes
  GIVEN,     // device, bytes
  KNOWN,     // whether it is relative to this call, calls back or call, index, bytes
  RETURNED,  // name, device, then NEW or KNOWN
};
using Events = std::vector<Number>;

struct Life {
  PyObject_HEAD
  Number call, step, count;
  PyObject *place, *rows, *child, *device;
  char asks_allocator, asks_owner;
  Events* events;
  Number serial;                                 // unique among all lives
  std::unordered_map<PyObject*, Number>* known;  // number in this call, by the (owned) reference
};

std::vector<Life*> running;  // the few lives that have not ended (borrowed)
Number lives = 0;

struct Core;

struct Weak {  // a weak reference with the identity of its storage
  PyWeakReference base;
  Core* core;
  Life* owner;
  Number index;
  Number known_by, known_index;  // serial of another life that has seen it, and its number there
  char is_given;
  Weak *before, *after;  // neighbours in the core's list of live storages
};

struct Core {
  PyObject_HEAD
  PyObject *running, *clock, *callback;
  Weak* first;
  Events* outside;  // (call, index, ns) of each death outside of calls
  bool is_monotonic;  // whether the clock is that of now_ns
};

void link(Core* core, Weak* weak) {
  weak->core = core, weak->before = nullptr, weak->after = core->first;
  if (core->first) core->first->before = weak;
  core->first = weak;
  Py_INCREF(weak);
}

void unlink(Weak* weak) {
  if (!weak->core) return;
  (weak->before ? weak->before->after : weak->core->first) = weak->after;
  if (weak->after) weak->after->before = weak->before;
  weak->core = nullptr;
  Py_DECREF(weak);
}

bool is_one_of(PyObject* first, PyObject* second) {
  if (!PyErr_ExceptionMatches(first) && !PyErr_ExceptionMatches(second)) return false;
  PyErr_Clear();
  return true;
}

// Returns the number that the method returns; -1 with an error set, as Python's own conversions do.
Number number_from(PyObject* object, PyObject* method) {
  Ref found(PyObject_CallMethodNoArgs(object, method));
  return found ? PyLong_AsLongLong(found.get()) : -1;
}

bool add(Core* core, Life* life, PyObject* storage, bool is_given, Events& events) {
  Ref args(PyTuple_Pack(2, storage, core->callback));
  Ref found(args ? _PyWeakref_RefType.tp_new(&weak_type, args.get(), nullptr) : nullptr);
  if (!found) return false;
  Weak* weak = reinterpret_cast<Weak*>(found.get());
  weak->owner = reinterpret_cast<Life*>(share(life));
  weak->index = life->count++, weak->is_given = is_given;
  link(core, weak);
  Number bytes = number_from(storage, s_nbytes);
  events.push_back(bytes);
  return bytes >= 0;
}

bool is_running(Number serial) {
  for (Life* one : running)
    if (one->serial == serial) return true;
  return false;
}

// Notes that a call knows a storage of another one; the reference has room for the usual case of one such call.
bool add_known(Life* life, Weak* found) {
  if (found->known_by == life->serial) return false;
  if (!is_running(found->known_by)) {
    found->known_by = life->serial, found->known_index = life->count;
    return true;
  }
  if (!life->known->emplace(reinterpret_cast<PyObject*>(found), life->count).second) return false;
  Py_INCREF(found);
  return true;
}

// Removes and returns its number in a call that knows it, or returns -1.
Number take_known(Life* life, Weak* weak) {
  if (weak->known_by == life->serial) return weak->known_by = 0, weak->known_index;
  auto met = life->known->find(reinterpret_cast<PyObject*>(weak));
  if (met == life->known->end()) return -1;
  Number index = met->second;
  life->known->erase(met);
  Py_DECREF(weak);
  return index;
}

bool known(Life* life, Weak* found, PyObject* storage, Events& events) {
  Ref kept(share(found));
  Life* owner = found->owner;
  if (owner == life || !add_known(life, found)) {
    events.push_back(NOTHING);
    return true;
  }
  life->count++;
  Number bytes = number_from(storage, s_nbytes), back = life->step - owner->step;
  bool is_near = back == 0 || (!found->is_given && back <= recent_steps);
  events.insert(events.end(), {KNOWN, is_near, is_near ? life->call - owner->call : owner->call, found->index, bytes});
  return bytes >= 0;
}

// Returns the reference to a storage that was seen before (borrowed), or nullptr.
Weak* find(Core* core, PyObject* storage) {
  PyObject* one = Py_TYPE(storage)->tp_weaklistoffset ? *PyObject_GET_WEAKREFS_LISTPTR(storage) : nullptr;
  for (; one; one = reinterpret_cast<PyObject*>(reinterpret_cast<PyWeakReference*>(one)->wr_next))
    if (Py_TYPE(one) == &weak_type && reinterpret_cast<Weak*>(one)->core == core) return reinterpret_cast<Weak*>(one);
  return nullptr;
}

Number device_of(PyObject* storage) {
  Ref device(PyObject_GetAttr(storage, s_device));
  if (!device) return -1;
  if (PyObject* found = PyDict_GetItemWithError(words.numbers, device.get())) return PyLong_AsLongLong(found);
  Ref text(PyErr_Occurred() ? nullptr : PyObject_Str(device.get()));
  return text ? words.of(device.get(), text.get()) : -1;
}

// Returns 1 for a tensor with a storage, 0 for anything else, -1 for an error.
int storage_of(PyObject* value, Ref& storage) {
  if (value == Py_None || PyLong_Check(value) || PyFloat_Check(value)) return 0;
  storage.take(PyObject_CallMethodNoArgs(value, s_untyped_storage));
  return storage ? 1 : is_one_of(PyExc_AttributeError, PyExc_RuntimeError) ? 0 : -1;
}

// Returns 1 if a tensor has memory or needs none, 0 for a wrapper around other tensors or a fake one, -1 for an error.
int has_memory(PyObject* value, PyObject* storage) {
  Number bytes = number_from(storage, s_nbytes), address = bytes ? number_from(value, s_data_ptr) : 1;
  if (bytes > 0 && address == 0) address = number_from(value, s_numel) == 0;
  if (!PyErr_Occurred()) return address != 0;
  return is_one_of(PyExc_AttributeError, PyExc_RuntimeError) ? 0 : -1;
}

bool allocated(Core* core, Life* life, PyObject* value, Events& events) {
  Ref storage(PyObject_CallMethodNoArgs(value, s_untyped_storage));
  events.push_back(NEW);
  return storage && add(core, life, storage.get(), false, events);
}

bool input(Core* core, Life* life, PyObject* value, Events& events) {
  Ref storage;
  int state = storage_of(value, storage);
  Weak* found = state > 0 ? find(core, storage.get()) : nullptr;
  if (found) return known(life, found, storage.get(), events);
  if (state > 0) state = has_memory(value, storage.get());
  if (state <= 0) {
    events.push_back(NOTHING);
    return state == 0;
  }
  Number device = device_of(storage.get());
  events.insert(events.end(), {GIVEN, device});
  return device >= 0 && add(core, life, storage.get(), true, events);
}

bool returned(Core* core, Life* life, Number name, PyObject* value, Events& events, Number& entries) {
  if (PyList_Check(value) || PyTuple_Check(value)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); i++) {
      Ref one(share(PySequence_Fast_GET_ITEM(value, i)));
      Number its_name = words.member_of(name, i);
      if (its_name < 0 || Py_EnterRecursiveCall(" in what a launch returned")) return false;
      bool is_done = returned(core, life, its_name, one.get(), events, entries);
      Py_LeaveRecursiveCall();
      if (!is_done) return false;
    }
    return true;
  }
  Ref storage;
  int state = storage_of(value, storage);
  Weak* found = state > 0 ? find(core, storage.get()) : nullptr;
  if (state > 0 && !found) state = has_memory(value, storage.get());
  if (state <= 0) return state == 0;
  Number device = device_of(storage.get());
  if (device < 0) return false;
  size_t start = events.size();
  events.insert(events.end(), {RETURNED, name, device});
  entries++;
  if (!found) {
    events.push_back(NEW);
    return add(core, life, storage.get(), false, events);
  }
  if (!known(life, found, storage.get(), events)) return false;
  if (events.size() == start + 4) {  // NOTHING
    events.resize(start);
    entries--;
  }
  return true;
}

void append_death(Life* life, Number index, PyObject* rows) {
  life->events->push_back(-1 - index);
  life->events->push_back(PyList_GET_SIZE(rows));
}

Number now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void died_outside(Core* core, Weak* weak) {
  Number now;
  if (core->is_monotonic) {
    now = now_ns();
  } else {
    Ref told(PyObject_CallNoArgs(core->clock));
    if (!told) return;
    now = PyLong_AsLongLong(told.get());
  }
  if (core->outside) core->outside->insert(core->outside->end(), {weak->owner->call, weak->index, now});
}

// Records the death of a storage that is not the innermost call's in each running call that knows it.
void death_elsewhere(Core* core, Weak* weak) {
  Life* owner = weak->owner;
  if (running.empty()) return died_outside(core, weak);
  Ref call(PyObject_CallNoArgs(core->running));
  bool is_seen = false;
  while (call && call.get() != Py_None) {
    PyObject* its = member(call.get(), calls.life);
    if (its && Py_TYPE(its) == &life_type) {
      Life* life = reinterpret_cast<Life*>(its);
      Number index = owner == life ? weak->index : take_known(life, weak);
      if (index >= 0) {
        append_death(life, index, member(call.get(), calls.rows));
        is_seen = true;
      }
    }
    call.take(share(member(call.get(), calls.parent)));
  }
  if (is_seen || !call) return;
  if (owner->rows != Py_None) return append_death(owner, weak->index, owner->rows);  // it runs in another thread
  died_outside(core, weak);
}

PyObject* on_death(PyObject* self, PyObject* found) {
  Core* core = reinterpret_cast<Core*>(self);
  Weak* weak = reinterpret_cast<Weak*>(found);
  if (Py_TYPE(found) == &weak_type && weak->core == core) {
    Ref kept(share(found));
    unlink(weak);
    Life* life = weak->owner;
    if (life->rows != Py_None && life->child == Py_None) {
      append_death(life, weak->index, life->rows);
    } else if (core->running) {
      death_elsewhere(core, weak);
    }
  }
  PyErr_Clear();  // the interpreter may be shutting down
  Py_RETURN_NONE;
}

PyMethodDef death_method = {"on_death", on_death, METH_O, "The callback of a storage's weak reference."};

// Weak

int weak_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Weak*>(self)->owner);
  return _PyWeakref_RefType.tp_traverse(self, visit, arg);
}

int weak_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Weak*>(self)->owner);
  return _PyWeakref_RefType.tp_clear(self);
}

void weak_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_CLEAR(reinterpret_cast<Weak*>(self)->owner);
  _PyWeakref_RefType.tp_dealloc(self);
}

// Life

void forget_known(Life* life) {
  std::unordered_map<PyObject*, Number> known;
  known.swap(*life->known);
  for (auto& one : known) Py_DECREF(one.first);
}

PyObject* life_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *call, *place = Py_None;
  if (!PyArg_ParseTuple(args, "O|O", &call, &place)) return nullptr;
  if (reinterpret_cast<PyObject*>(Py_TYPE(call)) != calls.type) {
    PyErr_SetString(PyExc_TypeError, "a life is that of a call");
    return nullptr;
  }
  Life* life = reinterpret_cast<Life*>(type->tp_alloc(type, 0));
  if (!life) return nullptr;
  life->call = PyLong_AsLongLong(member(call, calls.number));
  life->step = PyLong_AsLongLong(member(call, calls.step));
  life->place = share(place), life->rows = share(member(call, calls.rows));
  life->child = share(Py_None), life->device = share(Py_None);
  life->events = new Events, life->known = new std::unordered_map<PyObject*, Number>;
  life->events->reserve(4096);
  life->serial = ++lives;
  running.push_back(life);
  return reinterpret_cast<PyObject*>(life);
}

int life_traverse(PyObject* self, visitproc visit, void* arg) {
  Life* life = reinterpret_cast<Life*>(self);
  for (PyObject* one : {life->place, life->rows, life->child, life->device}) Py_VISIT(one);
  for (auto& one : *life->known) Py_VISIT(one.first);
  return 0;
}

int life_clear(PyObject* self) {
  Life* life = reinterpret_cast<Life*>(self);
  for (PyObject** one : {&life->place, &life->rows, &life->child, &life->device}) {
    PyObject* before = *one;
    *one = share(Py_None);  // later deaths read them
    Py_XDECREF(before);
  }
  forget_known(life);
  return 0;
}

void stop_running(Life* life) {
  for (size_t i = running.size(); i-- > 0;)
    if (running[i] == life) running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
}

void life_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Life* life = reinterpret_cast<Life*>(self);
  stop_running(life);
  forget_known(life);
  for (PyObject* one : {life->place, life->rows, life->child, life->device}) Py_XDECREF(one);
  delete life->events;
  delete life->known;
  Py_TYPE(self)->tp_free(self);
}

PyObject* life_end(PyObject* self, PyObject*) {
  Life* life = reinterpret_cast<Life*>(self);
  stop_running(life);
  Ref rows(life->rows), child(life->child);
  life->rows = share(Py_None), life->child = share(Py_None);
  Events().swap(*life->events);
  forget_known(life);
  Py_RETURN_NONE;
}

// Keeps one object for equal events, so that its hash is computed once.
std::unordered_map<Number, PyObject*> keys;
const size_t MOST_KEYS = 4096;

PyObject* life_key(PyObject* self, PyObject*) {
  Events* events = reinterpret_cast<Life*>(self)->events;
  const char* bytes = reinterpret_cast<const char*>(events->data());
  Py_ssize_t size = static_cast<Py_ssize_t>(events->size() * sizeof(Number));
  unsigned long long hash = 0;
  for (Number one : *events) hash = (hash ^ static_cast<unsigned long long>(one)) * 0x9E3779B97F4A7C15ull;
  PyObject*& key = keys[static_cast<Number>(hash)];
  if (key && PyBytes_GET_SIZE(key) == size && !memcmp(PyBytes_AS_STRING(key), bytes, size)) return share(key);
  Ref before(key);
  key = PyBytes_FromStringAndSize(bytes, size);
  if (!key || keys.size() <= MOST_KEYS) return key ? share(key) : nullptr;
  std::unordered_map<Number, PyObject*> old;
  old.swap(keys);
  Ref result(share(old[static_cast<Number>(hash)]));
  for (auto& one : old) Py_XDECREF(one.second);
  return share(result.get());
}

PyObject* entry_from(const Number*& at) {
  switch (*at++) {
    case NEW:
      return PyLong_FromLongLong(*at++);
    case GIVEN:
      return at += 2, Py_BuildValue("(OL)", words.texts[at[-2]], at[-1]);
    case KNOWN:
      at += 4;
      return at[-4] ? Py_BuildValue("(LOLL)", at[-3], Py_None, at[-2], at[-1])
                    : Py_BuildValue("(OLLL)", Py_None, at[-3], at[-2], at[-1]);
    case RETURNED: {
      at += 2;
      PyObject *name = words.texts[at[-2]], *device = words.texts[at[-1]];
      return Py_BuildValue("(OON)", name, device, entry_from(at));
    }
    default:
      Py_RETURN_NONE;
  }
}

PyObject* events_from(Events* events, size_t start) {
  Ref list(PyList_New(0));
  const Number *at = events->data() + start, *end = events->data() + events->size();
  while (list && at < end) {
    bool is_death = at[0] < 0;
    Py_ssize_t entries = is_death ? 0 : static_cast<Py_ssize_t>(at[2]);
    Ref event(PyTuple_New(2 + entries));
    if (!event) return nullptr;
    PyTuple_SET_ITEM(event.get(), 0, PyLong_FromLongLong(at[0]));
    PyTuple_SET_ITEM(event.get(), 1, PyLong_FromLongLong(at[1]));
    at += is_death ? 2 : 3;
    for (Py_ssize_t i = 0; i < entries; i++) PyTuple_SET_ITEM(event.get(), 2 + i, entry_from(at));
    if (PyErr_Occurred() || PyList_Append(list.get(), event.get()) < 0) return nullptr;
  }
  return list ? share(list.get()) : nullptr;
}

PyObject* life_events(PyObject* self, void*) { return events_from(reinterpret_cast<Life*>(self)->events, 0); }

PyObject* life_since(PyObject* self, PyObject* start) {
  Events events(*reinterpret_cast<Life*>(self)->events);  // a storage may die meanwhile
  Py_ssize_t at = PyLong_AsSsize_t(start);
  if (at == -1 && PyErr_Occurred()) return nullptr;
  if (at < 0 || static_cast<size_t>(at) > events.size()) at = static_cast<Py_ssize_t>(events.size());
  PyObject* list = events_from(&events, static_cast<size_t>(at));
  return list ? Py_BuildValue("(Nn)", list, static_cast<Py_ssize_t>(events.size())) : nullptr;
}

PyMethodDef life_methods[] = {
    {"since", life_since, METH_O, "As that of lifetimes.Life."},
    {"end", life_end, METH_NOARGS, "Its storages may live on, and this with them."},
    {"key", life_key, METH_NOARGS, "Equal for calls that ran alike."},
    {},
};
PyGetSetDef life_getset[] = {{"events", life_events, nullptr, "As those of lifetimes.Life.", nullptr}, {}};
PyMemberDef life_members[] = {
    {"call", T_LONGLONG, offsetof(Life, call), READONLY, nullptr},
    {"step", T_LONGLONG, offsetof(Life, step), READONLY, nullptr},
    {"place", T_OBJECT, offsetof(Life, place), READONLY, nullptr},
    {"rows", T_OBJECT, offsetof(Life, rows), READONLY, nullptr},
    {"child", T_OBJECT, offsetof(Life, child), 0, nullptr},
    {"device", T_OBJECT, offsetof(Life, device), 0, nullptr},
    {"asks_allocator", T_BOOL, offsetof(Life, asks_allocator), 0, nullptr},
    {"asks_owner", T_BOOL, offsetof(Life, asks_owner), 0, nullptr},
    {},
};

// Core

// Returns whether `clock` is time.perf_counter_ns and reads the same clock as now_ns.
bool is_perf_counter(PyObject* clock) {
#ifdef __linux__
  Ref module(PyImport_ImportModule("time"));
  Ref known(module ? PyObject_GetAttrString(module.get(), "perf_counter_ns") : nullptr);
  PyErr_Clear();
  return known.get() == clock;
#else
  return false;
#endif
}

int core_init(PyObject* self, PyObject* args, PyObject*) {
  Core* core = reinterpret_cast<Core*>(self);
  PyObject *running, *clock;
  if (!PyArg_ParseTuple(args, "OO", &running, &clock)) return -1;
  core->outside = new Events, core->running = share(running), core->clock = share(clock);
  core->is_monotonic = is_perf_counter(clock);
  core->callback = PyCFunction_New(&death_method, self);
  return core->callback ? 0 : -1;
}

int core_traverse(PyObject* self, visitproc visit, void* arg) {
  Core* core = reinterpret_cast<Core*>(self);
  for (PyObject* one : {core->running, core->clock, core->callback}) Py_VISIT(one);
  for (Weak* weak = core->first; weak; weak = weak->after) Py_VISIT(weak);
  return 0;
}

int core_clear(PyObject* self) {
  Core* core = reinterpret_cast<Core*>(self);
  while (core->first) unlink(core->first);
  for (PyObject** one : {&core->running, &core->clock, &core->callback}) Py_CLEAR(*one);
  return 0;
}

void core_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  core_clear(self);
  delete reinterpret_cast<Core*>(self)->outside;
  Py_TYPE(self)->tp_free(self);
}

PyObject* core_outside(PyObject* self, PyObject*) {
  Events taken;
  taken.swap(*reinterpret_cast<Core*>(self)->outside);
  Py_ssize_t count = static_cast<Py_ssize_t>(taken.size() / 3);
  Ref columns(Py_BuildValue("(NNN)", PyList_New(count), PyList_New(count), PyList_New(count)));
  if (!columns) return nullptr;
  for (Py_ssize_t i = 0; i < count; i++)
    for (Py_ssize_t j = 0; j < 3; j++)
      PyList_SET_ITEM(PyTuple_GET_ITEM(columns.get(), j), i, PyLong_FromLongLong(taken[3 * i + j]));
  return share(columns.get());
}

PyObject* core_storages(PyObject* self, PyObject*) {
  Ref list(PyList_New(0));
  for (Weak* weak = reinterpret_cast<Core*>(self)->first; list && weak; weak = weak->after) {
    PyObject* is_given = weak->is_given ? Py_True : Py_False;
    Ref one(Py_BuildValue("(OLOO)", weak->owner, weak->index, weak, is_given));
    if (!one || PyList_Append(list.get(), one.get()) < 0) return nullptr;
  }
  return list ? share(list.get()) : nullptr;
}

PyMethodDef core_methods[] = {
    {"outside", core_outside, METH_NOARGS, "Calls, indices and moments of deaths outside of calls, taken."},
    {"storages", core_storages, METH_NOARGS, "(owner, index, reference, is_given) of all that are alive."},
    {},
};

// Observer

struct Observer {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *core, *hooks;
  std::vector<char>* kinds;                 // of each point: a(llocated), i(nput), r(eturned)
  std::vector<std::vector<Number>>* names;  // of each point
  Number taken_ns;
};

bool observer_values(Observer* observer, PyObject* call, PyObject* place, PyObject* values) {
  Ref its(share(member(call, calls.life)));
  if (Py_TYPE(its.get()) != &life_type) return true;
  Life* life = reinterpret_cast<Life*>(its.get());
  Core* core = reinterpret_cast<Core*>(observer->core);
  Py_ssize_t at = PyLong_AsSsize_t(place);
  if (at < 0 || at >= static_cast<Py_ssize_t>(observer->kinds->size())) {
    PyErr_SetString(PyExc_IndexError, "no such place");
    return false;
  }
  // The event is added when it is complete, since a storage may die meanwhile.
  static Events kept;
  Events found;
  found.swap(kept);
  found.assign({at, static_cast<Number>(PyList_GET_SIZE(member(call, calls.rows))), 0});
  Number entries = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); i++) {
    PyObject* value = PyTuple_GET_ITEM(values, i);
    bool is_done = false;
    switch ((*observer->kinds)[at]) {
      case 'a':
        is_done = allocated(core, life, value, found);
        entries++;
        break;
      case 'i':
        is_done = input(core, life, value, found);
        entries++;
        break;
      default:
        is_done = returned(core, life, (*observer->names)[at][i], value, found, entries);
    }
    if (!is_done) return false;
  }
  found[2] = entries;
  life->events->insert(life->events->end(), found.begin(), found.end());
  found.swap(kept);
  if (life->asks_owner && (*observer->kinds)[at] == 'i') {
    Ref told(PyObject_CallMethod(observer->hooks, "see_inputs", "OOO", call, place, values));
    if (!told) return false;
  }
  if (!life->asks_allocator) return true;
  Ref asked(PyObject_CallMethod(observer->hooks, "ask_allocator", "OO", call, life->device));
  return bool(asked);
}

// Passes an Exception to the hooks; returns false for others (KeyboardInterrupt), which are the program's.
bool tell(Observer* observer, PyObject* call) {
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  Ref told(PyObject_CallMethod(observer->hooks, "lost", "OO", call, error));
  Py_XDECREF(type), Py_XDECREF(error), Py_XDECREF(trace);
  return bool(told);
}

PyObject* observer_call(PyObject* self, PyObject* const* args, size_t flags, PyObject*) {
  Number started = now_ns();
  Observer* observer = reinterpret_cast<Observer*>(self);
  if (PyVectorcall_NARGS(flags) != 3 || reinterpret_cast<PyObject*>(Py_TYPE(args[0])) != calls.type ||
      !PyLong_Check(args[1]) || !PyTuple_Check(args[2])) {
    PyErr_SetString(PyExc_TypeError, "a call, a point and a tuple of values are needed");
    return nullptr;
  }
  if (!observer_values(observer, args[0], args[1], args[2]) && !tell(observer, args[0])) return nullptr;
  observer->taken_ns += now_ns() - started;
  Py_RETURN_NONE;
}

int observer_init(PyObject* self, PyObject* args, PyObject*) {
  Observer* observer = reinterpret_cast<Observer*>(self);
  PyObject *core, *hooks, *names;
  const char* kinds;
  if (!PyArg_ParseTuple(args, "O!OsO!", &core_type, &core, &hooks, &kinds, &PyTuple_Type, &names)) return -1;
  observer->core = share(core), observer->hooks = share(hooks);
  observer->kinds = new std::vector<char>(kinds, kinds + strlen(kinds));
  observer->names = new std::vector<std::vector<Number>>;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
    PyObject* of_place = PyTuple_GET_ITEM(names, i);
    observer->names->emplace_back();
    for (Py_ssize_t j = 0; PyTuple_Check(of_place) && j < PyTuple_GET_SIZE(of_place); j++) {
      PyObject* name = PyTuple_GET_ITEM(of_place, j);
      observer->names->back().push_back(words.of(name, name));
      if (observer->names->back().back() < 0) return -1;
    }
  }
  observer->vectorcall = observer_call;
  return 0;
}

int observer_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<Observer*>(self)->core);
  Py_VISIT(reinterpret_cast<Observer*>(self)->hooks);
  return 0;
}

int observer_clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Observer*>(self)->core);
  Py_CLEAR(reinterpret_cast<Observer*>(self)->hooks);
  return 0;
}

void observer_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  observer_clear(self);
  delete reinterpret_cast<Observer*>(self)->kinds;
  delete reinterpret_cast<Observer*>(self)->names;
  Py_TYPE(self)->tp_free(self);
}

PyObject* observer_taken(PyObject* self, PyObject*) {
  Observer* observer = reinterpret_cast<Observer*>(self);
  Number taken = observer->taken_ns;
  observer->taken_ns = 0;
  return PyLong_FromLongLong(taken);
}

PyMethodDef observer_methods[] = {{"taken", observer_taken, METH_NOARGS, "Nanoseconds spent here since the last time."}, {}};

// The module

PyObject* set_up(PyObject*, PyObject* args) {
  PyObject* type;
  if (!PyArg_ParseTuple(args, "OL", &type, &recent_steps)) return nullptr;
  struct {
    const char* name;
    Py_ssize_t* offset;
  } wanted[] = {{"number", &calls.number}, {"life", &calls.life}, {"rows", &calls.rows}, {"parent", &calls.parent},
                {"step", &calls.step}};
  for (auto& one : wanted) {
    Ref found(PyObject_GetAttrString(type, one.name));
    if (!found) return nullptr;
    if (Py_TYPE(found.get()) != &PyMemberDescr_Type) return PyErr_Format(PyExc_TypeError, "%s is no slot", one.name);
    *one.offset = reinterpret_cast<PyMemberDescrObject*>(found.get())->d_member->offset;
  }
  calls.type = share(type);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {{"set_up", set_up, METH_VARARGS, "The class GraphCall, and RECENT_STEPS."}, {}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "stepscope_lifetimes", nullptr, -1, functions,
                      nullptr, nullptr, nullptr, nullptr};

void describe(PyTypeObject& type, const char* name, size_t size, traverseproc traverse, inquiry clear,
              destructor dealloc) {
  type.tp_name = name;
  type.tp_basicsize = static_cast<Py_ssize_t>(size);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  type.tp_traverse = traverse, type.tp_clear = clear, type.tp_dealloc = dealloc;
}

}  // namespace

PyMODINIT_FUNC PyInit_stepscope_lifetimes() {
  describe(core_type, "stepscope_lifetimes.Core", sizeof(Core), core_traverse, core_clear, core_dealloc);
  core_type.tp_new = PyType_GenericNew, core_type.tp_init = core_init, core_type.tp_methods = core_methods;
  describe(life_type, "stepscope_lifetimes.Life", sizeof(Life), life_traverse, life_clear, life_dealloc);
  life_type.tp_new = life_new, life_type.tp_methods = life_methods;
  life_type.tp_members = life_members, life_type.tp_getset = life_getset;
  describe(observer_type, "stepscope_lifetimes.Observer", sizeof(Observer), observer_traverse, observer_clear, observer_dealloc);
  observer_type.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  observer_type.tp_vectorcall_offset = offsetof(Observer, vectorcall), observer_type.tp_call = PyVectorcall_Call;
  observer_type.tp_new = PyType_GenericNew, observer_type.tp_init = observer_init, observer_type.tp_methods = observer_methods;
  describe(weak_type, "stepscope_lifetimes.Weak", sizeof(Weak), weak_traverse, weak_clear, weak_dealloc);
  weak_type.tp_base = &_PyWeakref_RefType;
  s_data_ptr = PyUnicode_InternFromString("data_ptr");
  s_nbytes = PyUnicode_InternFromString("nbytes");
  s_numel = PyUnicode_InternFromString("numel");
  s_untyped_storage = PyUnicode_InternFromString("untyped_storage");
  s_device = PyUnicode_InternFromString("device");
  words.numbers = PyDict_New();
  for (PyTypeObject* type : {&core_type, &life_type, &observer_type, &weak_type})
    if (PyType_Ready(type) < 0) return nullptr;
  Ref made(PyModule_Create(&module));
  if (!made || PyModule_AddObject(made.get(), "Core", share(&core_type)) < 0 ||
      PyModule_AddObject(made.get(), "Life", share(&life_type)) < 0 ||
      PyModule_AddObject(made.get(), "Observer", share(&observer_type)) < 0)
    return nullptr;
  return share(made.get());
}
