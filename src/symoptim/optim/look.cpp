// Where tensors lie and how, for a list of them at once; places.py says the same in Python, one by one.
#include <Python.h>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

namespace {

using Numbers = std::vector<int64_t>;

// The tensor behind an object of Python; none if there is none.
c10::TensorImpl* tensor_of(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("_cdata");
  PyObject* const address = PyObject_GetAttr(object, name);
  if (address == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  auto* const tensor = static_cast<c10::TensorImpl*>(PyLong_AsVoidPtr(address));
  Py_DECREF(address);
  return tensor;
}

// Throws if the tensor has no strides, or no memory of its own.
void note(c10::TensorImpl& tensor, Numbers& forms, Numbers& addresses) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const auto device = tensor.device();
  const auto end = forms.size();
  forms.resize(end + 4 + 2 * sizes.size());
  int64_t* form = forms.data() + end;
  // Keys tell dense memory from all else: sparse, lazily negated, classes that hold other tensors.
  *form++ = static_cast<int64_t>(tensor.key_set().raw_repr());
  *form++ = static_cast<int64_t>(c10::typeMetaToScalarType(tensor.dtype()));
  *form++ = static_cast<int64_t>(device.type()) * 256 + device.index();
  *form++ = static_cast<int64_t>(sizes.size());
  form = std::copy(sizes.begin(), sizes.end(), form);
  std::copy(strides.begin(), strides.end(), form);
  addresses.push_back(reinterpret_cast<int64_t>(tensor.mutable_data()));
}

PyObject* bytes_of(const Numbers& numbers) {
  const auto size = numbers.size() * sizeof(int64_t);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers.data()), size);
}

}  // namespace

// Forms and addresses of tensors, and the same of the gradients of the first of them, as four strings of bytes.
// None, if one of all these is missing, is no tensor, or does not lie in memory.
extern "C" PyObject* look(PyObject* tensors, Py_ssize_t with_gradient) {
  if (!PyList_Check(tensors)) {
    return PyErr_Format(PyExc_TypeError, "look() takes a list of tensors, not %R", Py_TYPE(tensors));
  }
  thread_local Numbers seen[4];  // memory of the step before
  for (auto& numbers : seen) {
    numbers.clear();
  }
  for (Py_ssize_t place = 0; place < PyList_GET_SIZE(tensors); ++place) {
    try {
      auto* const tensor = tensor_of(PyList_GET_ITEM(tensors, place));
      if (tensor == nullptr) {
        Py_RETURN_NONE;
      }
      note(*tensor, seen[0], seen[1]);
      if (place < with_gradient) {
        note(*tensor->grad().unsafeGetTensorImpl(), seen[2], seen[3]);  // throws if it is undefined
      }
    } catch (const std::exception&) {
      Py_RETURN_NONE;
    }
  }
  return Py_BuildValue("NNNN", bytes_of(seen[0]), bytes_of(seen[1]), bytes_of(seen[2]), bytes_of(seen[3]));
}
