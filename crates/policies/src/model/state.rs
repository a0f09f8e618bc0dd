//! All objects at one revision, in order.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::id::{ObjectId, ObjectKind};
use super::object::{Object, ObjectChange};
use super::revision::Position;
use super::shared::SharedParts;

/// All objects at a revision. A clone shares them.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PolicyState {
    position: Position,
    #[serde(serialize_with = "objects_alone")]
    objects: Arc<BTreeMap<ObjectId, Arc<Object>>>,
}

impl PolicyState {
    /// Before the first revision.
    pub fn empty() -> Self {
        Self::default()
    }

    pub fn new(position: Position, objects: impl IntoIterator<Item = Arc<Object>>) -> Self {
        let mut by_id = BTreeMap::new();
        for object in objects {
            by_id.insert(object.id.clone(), object);
        }
        Self {
            position,
            objects: Arc::new(by_id),
        }
    }

    pub fn position(&self) -> Position {
        self.position
    }

    pub fn revision(&self) -> u64 {
        self.position.revision
    }

    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn get(&self, id: &ObjectId) -> Option<&Arc<Object>> {
        self.objects.get(id)
    }

    /// By kind, application and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    pub fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = &Arc<Object>> {
        let from = ObjectId::before(kind, "");
        self.objects_from(from)
            .take_while(move |object| object.id.kind() == kind)
    }

    pub fn of(&self, kind: ObjectKind, application: &str) -> impl Iterator<Item = &Arc<Object>> {
        let from = ObjectId::before(kind, application);
        self.objects_from(from).take_while(move |object| {
            object.id.kind() == kind && object.id.application() == application
        })
    }

    fn objects_from(&self, id: ObjectId) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.range(id..).map(|(_, object)| object)
    }

    /// The applications that objects are of, with an object of their own or without.
    pub fn applications(&self) -> BTreeSet<&str> {
        self.iter().map(|object| object.id.belongs_to()).collect()
    }

    /// The state after these changes: a follower's step.
    pub fn advanced(&self, changes: &[ObjectChange], to: Position) -> Self {
        let mut next = self.clone();
        next.position = to;
        let objects = Arc::make_mut(&mut next.objects);
        for change in changes {
            match &change.after {
                Some(object) => drop(objects.insert(change.id.clone(), Arc::clone(object))),
                None => drop(objects.remove(&change.id)),
            }
        }
        next
    }

    /// The changes that make this state say what `to` says.
    pub fn differences(&self, to: &Self) -> Vec<ObjectChange> {
        let mut changes = Vec::new();
        for object in self.iter() {
            if to.get(&object.id).is_none() {
                changes.push(ObjectChange {
                    id: object.id.clone(),
                    before: Some(Arc::clone(object)),
                    after: None,
                });
            }
        }
        for object in to.iter() {
            changes.push(ObjectChange {
                id: object.id.clone(),
                before: self.get(&object.id).cloned(),
                after: Some(Arc::clone(object)),
            });
        }
        changes.retain(|change| !change.is_alike());
        changes.sort_by(|one, other| one.id.cmp(&other.id));
        changes
    }
}

fn objects_alone<S: serde::Serializer>(
    objects: &BTreeMap<ObjectId, Arc<Object>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(objects.values())
}

#[derive(Deserialize)]
struct WrittenState {
    position: Position,
    objects: Vec<Object>,
}

impl<'de> Deserialize<'de> for PolicyState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = WrittenState::deserialize(deserializer)?;
        let mut objects = BTreeMap::new();
        let mut shared = SharedParts::default();
        for mut object in written.objects {
            if !object.body.is_object() {
                return Err(D::Error::custom(format!(
                    "the body of {} is no JSON object",
                    object.id
                )));
            }
            object.body = shared
                .body(&object.body.to_string())
                .map_err(D::Error::custom)?;
            object.created_by = shared.text(&object.created_by);
            object.changed_by = shared.text(&object.changed_by);
            match objects.entry(object.id.clone()) {
                Entry::Vacant(place) => drop(place.insert(Arc::new(object))),
                Entry::Occupied(_) => {
                    return Err(D::Error::custom(format!("{} stands twice", object.id)));
                }
            }
        }
        Ok(Self {
            position: written.position,
            objects: Arc::new(objects),
        })
    }
}
