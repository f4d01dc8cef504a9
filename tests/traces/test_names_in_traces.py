"""Classification of kernels, copies and frames by their names."""

from __future__ import annotations

import pytest

from hotlap.traces.dialects import (
    COMPILATION,
    LOADER,
    copy_direction,
    copy_memory,
    is_collective,
    is_useful_frame,
    is_users_frame,
    uses_tensor_cores,
)


@pytest.mark.parametrize(
    ("name", "direction", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", "pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH", "pinned"),
        ("Memcpy DtoD (Device -> Device)", "DtoD", "device"),
        ("Memcpy PtoP (Device -> Device)", "DtoD", "device"),
        ("CopyHostToDevice", "HtoD", "unknown"),
        ("CopyDeviceToHost", "DtoH", "unknown"),
        ("Memcpy", "unknown", "unknown"),
    ],
)
def test_copies_by_direction_and_memory(name: str, direction: str, memory: str) -> None:
    assert (copy_direction(name), copy_memory(name)) == (direction, memory)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", True),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", True),
        ("ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_relu_f2f_stages_64x4_tn", True),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SE", True),
        ("volta_sgemm_128x32_nt", False),
        ("ampere_scudnn_128x64_relu_xregs_large_nn_v1", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>", None),
        ("triton_poi_fused_add_relu_0", None),
        # MIOpen's element-wise operators on tensors; "OpTensor" is no instruction.
        ("SubTensorOpWithScalar1d", None),
        ("void cutlass::gemm::kernel::DefaultMmaTensorOp<cutlass::arch::OpClassTensorOp>", True),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", True),
        ("nvjet_sm100_tst_256x128_64x3_2x1_2cta_v_bz_TNT", True),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)", True),
        ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>", True),
        ("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64>>", False),
        ("void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64>>", False),
        ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<>>>", True),
        ("void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<>>", False),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>)", True),
        ("fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<float>)", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention::AttentionKernel<float>)", False),
        ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_64x64x128", True),
        ("void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<>>", True),
        ("void ck::kernel_gemm_xdlops_v2r3<ck::GridwiseGemm_k0mk1>", True),
        ("igemm_fwd_gtcx_nhwc_fp16_bx0_ex0_bt128x128x32", True),
        ("void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", False),
        ("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>", False),
    ],
)
def test_tensor_cores_by_the_kernels_name(name: str, expected: bool | None) -> None:
    assert uses_tensor_cores(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.py(30): main", True),
        ("/home/someone/project/model.py(12): forward", True),
        ("project/data.py(7): __getitem__", True),
        ("torch/nn/modules/module.py(1500): _call_impl", False),
        ("/usr/lib/python3.11/site-packages/numpy/core.py(5): f", False),
        ("threading.py(1032): _bootstrap", False),
        ("hotlap/runtime/interception.py(184): backward", False),
        ("src/hotlap/levers/loader.py(40): fetch", False),
        ("hotlap/demo/digits.py(12): main", True),
        ("<built-in function len>", False),
        ("/tmp/torchinductor_user/6k/c6k76fq63azkkogxp63q2v5zu6leowwjhkz4u3b2qg35fy5few25.py(137): call", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_frames_are_classified_by_owner(name: str, expected: bool) -> None:
    assert is_users_frame(name) is expected


def test_packages_that_are_known_to_be_installed_are_not_the_users() -> None:
    for frame in ("einops/einops.py(400): rearrange", "einops.py(12): rearrange"):
        assert is_users_frame(frame)
        assert not is_users_frame(frame, {"einops"})
        assert is_users_frame(f"project/{frame}", {"einops"})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", True),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", True),
        ("void c10d::symmetric_memory::multimem_one_shot_all_reduce_kernel<float, 4>", True),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16>", True),
        ("void aiter::allreduce_fusion_kernel_1stage<>", True),
        ("void quickreduce::allreduce_prototype_twoshot<>", True),
        ("void deep_ep::intranode::dispatch<8, 768>", True),
        ("void deep_ep::internode_ll::combine<true, 7168>", True),
        ("void vllm::cross_device_reduce_1stage<float, 2>", True),
        ("void all_to_all_vdev_kernel<true>", True),
        ("userbuffers_fp16_sum_inplace_gpu_rw_ag", True),
        ("void oneflow::cuda::softmax::BlockAllReduce<float>", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", False),
        ("triton_poi_fused_add_all_reduce_3", False),
        ("volta_sgemm_128x32_nt", False),
    ],
)
def test_collectives_by_any_name(name: str, expected: bool) -> None:
    assert is_collective(name) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("enumerate(DataLoader)#_StatefulMultiProcessingDataLoaderIter.__next__", True),
        ("torchdata/stateful_dataloader/stateful_dataloader.py(404): __next__", True),
        ("torchdata/nodes/base_node.py(60): next", True),
        ("enumerate(DataPipe)#BatcherIterDataPipe", True),
        ("torch/utils/data/datapipes/_hook_iterator.py(181): __next__", True),
        ("nvidia/dali/plugin/pytorch/__init__.py(290): __next__", True),
        ("/opt/venv/lib/python3.11/site-packages/nvidia/dali/plugin/base_iterator.py(560): _get_outputs", True),
        ("webdataset/pipeline.py(70): iterator", True),
        ("torch/utils/data/dataset.py(350): __getitem__", False),
        ("webdataset/utils.py(12): identity", False),
        ("train.py(30): next", False),
    ],
)
def test_loaders_by_any_name(name: str, expected: bool) -> None:
    assert bool(LOADER.search(name)) is expected
    if expected and "(" in name and ".py" in name:
        assert is_useful_frame(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Recorded on every call of a compiled function.
        ("torch/_dynamo/eval_frame.py(1076): compile_wrapper", False),
        ("torch/_dynamo/eval_frame.py(1423): _fn", False),
        ("TorchDynamo Cache Lookup", False),
        ("Torch-Compiled Region: 0/0", False),
        ("CompiledFunction", False),
        ("## Call CompiledFxGraph fmfgi24dj64a5rtgcctis3ufk4yvwgtg24y3uxi43rolqo7fhecf ##", False),
        ("torch/_functorch/_aot_autograd/runtime_wrappers.py(2809): get_or_compile", False),
        ("torch/_functorch/_aot_autograd/runtime_wrappers.py(3410): _codegen_finalize", False),
        ("torch/_functorch/_aot_autograd/subclass_codegen.py:codegen(compiled_fn_wrapper)(1): _transform_raw_returns",
         False),
        ("torch/_inductor/runtime/autotune_cache.py(490): has_active_compile", False),
        ("torch/_inductor/runtime/triton_heuristics.py(1200): run", False),
        ("torch/_inductor/cudagraph_trees.py(410): deferred_cudagraphify", False),
        ("compile_model.py(12): compile_fx", False),
        # Recorded only during compilation or capture.
        ("torch/_dynamo/convert_frame.py(1500): _compile", True),
        ("torch/_inductor/compile_fx.py(788): compile_fx_inner", True),
        ("torch/_inductor/compile_fx.py(2956): bw_compiler", True),
        ("torch/_inductor/async_compile.py(540): wait", True),
        ("torch/_inductor/runtime/triton_heuristics.py(1100): autotune_to_one_config", True),
        ("torch/_inductor/cudagraph_trees.py(2372): record_function", True),
        ("triton/compiler/compiler.py(220): compile", True),
        ("_compile.compile_inner (dynamo_timed)", True),
        ("compile_fx.<locals>.bw_compiler (dynamo_timed)", True),
        ("cudaGraphInstantiate", True),
    ],
)  # fmt: skip
def test_only_real_compilation_counts(name: str, expected: bool) -> None:
    assert bool(COMPILATION.search(name)) is expected
    if expected and ".py(" in name:
        assert is_useful_frame(name)
