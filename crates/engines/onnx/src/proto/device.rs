//! The devices that a model is sharded for.

use prost::Message;

use super::dimension;

/// A multi-device configuration.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceConfigurationProto {
    /// Name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Number of devices.
    #[prost(int32, optional, tag = "2")]
    pub num_devices: Option<i32>,
    /// Names of devices.
    #[prost(string, repeated, tag = "3")]
    pub device: Vec<String>,
}

/// Placement of a node.
#[derive(Clone, PartialEq, Message)]
pub struct NodeDeviceConfigurationProto {
    /// Which configuration.
    #[prost(string, optional, tag = "1")]
    pub configuration_id: Option<String>,
    /// How its tensors are cut.
    #[prost(message, repeated, tag = "2")]
    pub sharding_spec: Vec<ShardingSpecProto>,
    /// Pipeline stage.
    #[prost(int32, optional, tag = "3")]
    pub pipeline_stage: Option<i32>,
}

/// How a tensor is cut.
#[derive(Clone, PartialEq, Message)]
pub struct ShardingSpecProto {
    /// Which tensor.
    #[prost(string, optional, tag = "1")]
    pub tensor_name: Option<String>,
    /// Devices.
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub device: Vec<i64>,
    /// Groups of devices.
    #[prost(message, repeated, tag = "3")]
    pub index_to_device_group_map: Vec<IntIntListEntryProto>,
    /// Cut dimensions.
    #[prost(message, repeated, tag = "4")]
    pub sharded_dim: Vec<ShardedDimProto>,
}

/// A group of devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct IntIntListEntryProto {
    /// Index of the group.
    #[prost(int64, optional, tag = "1")]
    pub key: Option<i64>,
    /// Its devices.
    #[prost(int64, repeated, packed = "false", tag = "2")]
    pub value: Vec<i64>,
}

/// A cut dimension.
#[derive(Clone, PartialEq, Message)]
pub struct ShardedDimProto {
    /// Which axis.
    #[prost(int64, optional, tag = "1")]
    pub axis: Option<i64>,
    /// How.
    #[prost(message, repeated, tag = "2")]
    pub simple_sharding: Vec<SimpleShardedDimProto>,
}

/// An evenly cut dimension.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SimpleShardedDimProto {
    /// Size or symbol.
    #[prost(oneof = "dimension::Value", tags = "1, 2")]
    pub dim: Option<dimension::Value>,
    /// Number of parts.
    #[prost(int64, optional, tag = "3")]
    pub num_shards: Option<i64>,
}
